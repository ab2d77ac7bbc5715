#include "lockstep/comm/options.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/pack.h"

namespace lockstep {
namespace {

TEST(OptionsTest, ImplementationHasNames) {
  EXPECT_EQ(CommunicationImplementation("rInG"), CommunicationImplementation::Ring);
  EXPECT_EQ(CommunicationImplementation(CommunicationImplementation::Nccl).name(), "NCCL");
  EXPECT_THROW(CommunicationImplementation("mpi"), c10::ValueError);
}

TEST(OptionsTest, RejectsNegativePacks) {
  EXPECT_THROW(CommunicationOptions{.bytes_per_pack = -1}.validate(), c10::ValueError);
  EXPECT_NO_THROW((CommunicationOptions{.bytes_per_pack = 0, .timeout_seconds = -1}.validate()));
}

TEST(OptionsTest, MergeTakesWhatDiffersFromTheDefault) {
  const CommunicationOptions base{.bytes_per_pack = 8, .timeout_seconds = 2.0};
  EXPECT_EQ(base.merge({}), base);
  const auto merged = base.merge({.timeout_seconds = 0.0, .implementation = "nccl"});
  EXPECT_EQ(merged.bytes_per_pack, 8);
  EXPECT_EQ(merged.timeout_seconds, 0.0);
  EXPECT_EQ(merged.implementation, CommunicationImplementation::Nccl);
}

TEST(OptionsTest, TimeoutOfZeroIsNone) {
  EXPECT_EQ(CommunicationOptions{}.timeout().count(), 0);
  EXPECT_EQ((CommunicationOptions{.timeout_seconds = 1.5}.timeout()), std::chrono::milliseconds(1500));
  EXPECT_GT((CommunicationOptions{.timeout_seconds = 0}.timeout()), std::chrono::hours(24 * 300));
}

TEST(PackTest, ClosesAPackOnceItIsLarger) {
  using comm::Pack;
  const std::vector<uint64_t> bytes = {128, 32, 800, 4};
  EXPECT_EQ(comm::group_by_size(bytes, 0), (std::vector<Pack>{{0, 4}}));
  EXPECT_EQ(comm::group_by_size(bytes, 100), (std::vector<Pack>{{0, 1}, {1, 3}, {3, 4}}));
  EXPECT_EQ(comm::group_by_size(bytes, 128), (std::vector<Pack>{{0, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(comm::group_by_size(bytes, 1000), (std::vector<Pack>{{0, 4}}));
  EXPECT_EQ(comm::group_by_size(std::vector<uint64_t>{}, 4), std::vector<Pack>{});
  EXPECT_EQ(comm::group_by_size(std::vector<uint64_t>{}, 0), (std::vector<Pack>{{0, 0}}));
}

TEST(EngineTableTest, LocalIsAlwaysThere) {
  EXPECT_TRUE(comm::find_engine("local").available);
  EXPECT_THROW(comm::find_engine("pigeon"), c10::ValueError);
}

}  // namespace
}  // namespace lockstep
