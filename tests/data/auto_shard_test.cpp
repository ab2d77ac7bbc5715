#include "lockstep/data/rewrites/auto_shard.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/log.h"
#include "lockstep/data/files.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Returns the warnings of sharding a dataset for one of `num_workers` workers.
template <class T>
std::vector<std::string> warnings_of(const Dataset<T>& dataset, AutoShardPolicy policy, int64_t num_workers) {
  std::vector<std::string> lines;
  log::set_sink([&](log::Level, std::string_view line) { lines.emplace_back(line); });
  detail::auto_shard(detail::node_of(dataset), {num_workers, 0, 1}, policy);
  log::set_sink({});
  return lines;
}

TEST(AutoShardTest, WarnsWhenAutoFallsBackToData) {
  const auto in_memory = range(8).batch(2);
  EXPECT_THAT(warnings_of(in_memory, AutoShardPolicy::Auto, 2),
              ElementsAre(AllOf(HasSubstr("[distribute_dataset] AutoShardPolicy::Auto divides the dataset by data"),
                                HasSubstr("each of the 2 workers"), HasSubstr("dataset=range(8).batch(2)"))));
  EXPECT_THAT(warnings_of(in_memory, AutoShardPolicy::Data, 2), IsEmpty()) << "asked for";
  EXPECT_THAT(warnings_of(in_memory, AutoShardPolicy::Auto, 1), IsEmpty()) << "nothing is divided";
  const auto files = text_lines(std::vector<std::string>{"a", "b"});
  EXPECT_THAT(warnings_of(files, AutoShardPolicy::Auto, 2), IsEmpty()) << "divided by files";
}

}  // namespace
}  // namespace lockstep::data
