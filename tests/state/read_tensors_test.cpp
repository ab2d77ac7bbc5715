#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/block_file.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/load_plan.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

/// A tensor of 5 million numbers in three pieces of two files, and partly in memory.
class ReadTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    whole = at::arange(kCount, at::kInt).view({5, 1000, 1000});
    const auto* const bytes = static_cast<const char*>(whole.data_ptr());
    const auto piece = [&](int64_t begin, int64_t end) {
      return detail::SavedPiece{"x", at::kInt, {5, 1000, 1000}, begin, end, bytes + 4 * begin};
    };
    add(detail::write_part(folder / "a", {piece(3'000'000, 4'500'000), piece(0, 1'000'001)}, {}));
    add(detail::write_part(folder / "b", {piece(1'000'001, 3'000'000)}, {}));
    tensor.pieces = {{4'500'000, whole.view(-1).slice(0, 4'500'000, kCount)}};
    tensor.dtype = at::kInt;
    tensor.sizes = {5, 1000, 1000};
  }

  void add(const detail::PartIndex& part) {
    const auto file = std::make_shared<const detail::BlockFile>(folder / part.file, part.checksums);
    for (const auto& piece : part.pieces) tensor.stored.push_back({piece.begin, piece.end, file, piece.offset});
  }

  static constexpr int64_t kCount = 5'000'000;
  TestFolder folder;
  at::Tensor whole;
  StateTensor tensor;
};

TEST_F(ReadTensorsTest, ReadsAll) { EXPECT_TRUE(tensor.read().equal(whole)); }

TEST_F(ReadTensorsTest, ReadsPiecesThatOverlap) {
  std::vector<detail::TensorRead> reads;
  const std::vector<std::pair<int64_t, int64_t>> wanted = {
      {0, kCount}, {17, 18}, {999'999, 1'000'003}, {2'999'990, 4'600'000}, {5, 1'200'000}, {100, 100}};
  for (const auto& [begin, end] : wanted) reads.push_back({&tensor, {{begin, at::empty({end - begin}, at::kInt)}}});
  detail::read_tensors(reads);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(reads[i].targets[0].values.equal(whole.view(-1).slice(0, wanted[i].first, wanted[i].second))) << i;
  }
}

TEST_F(ReadTensorsTest, RefusesWhatIsNotThere) {
  tensor.stored.pop_back();
  EXPECT_THAT(message_of<c10::ValueError>([&] { tensor.read(); }), HasSubstr("wrong from element 1000001"));
  const at::Tensor floats = at::empty({2});
  EXPECT_THAT(message_of<c10::ValueError>([&] {
                detail::read_tensors({{&tensor, {{0, floats}}}});
              }),
              HasSubstr("dtype"));
  const at::Tensor behind = at::empty({2}, at::kInt);
  EXPECT_THROW(detail::read_tensors({{&tensor, {{kCount - 1, behind}}}}), c10::ValueError);
}

TEST_F(ReadTensorsTest, PassesDamageOn) {
  std::string bytes = bytes_of(folder / "b");
  bytes[bytes.size() - 100] ^= 4;
  write_bytes(folder / "b", bytes);
  EXPECT_THAT(message_of([&] { tensor.read(); }), HasSubstr("is damaged: file=\"" + folder / "b"));
}

}  // namespace
}  // namespace lockstep::tests
