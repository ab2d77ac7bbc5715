// Workers that share a stream make only their own rows.

#include "lockstep/data/independent_rows.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/data/rewrites/worker_pipeline.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

struct Shared {
  Dataset<at::Tensor> batches;
  /// Every row that the function was given.
  std::shared_ptr<std::vector<int64_t>> made = std::make_shared<std::vector<int64_t>>();
};

Shared squares(int64_t count, int64_t batch) {
  Shared shared{range(count).batch(batch)};
  shared.batches = independent_rows(shared.batches.map(
                                        [made = shared.made](const at::Tensor& rows) {
                                          for (int64_t i = 0; i < rows.size(0); ++i)
                                            made->push_back(rows[i].item<int64_t>());
                                          return rows * rows;
                                        },
                                        {.spec = shared.batches.element_spec()}))
                       .with_options({.auto_shard_policy = AutoShardPolicy::Data});
  return shared;
}

/// The elements of one worker.
std::vector<std::vector<int64_t>> pieces_of(const Dataset<at::Tensor>& batches, const detail::InputWorker& worker) {
  const Dataset<at::Tensor> own(detail::worker_pipeline(detail::node_of(batches), worker).node);
  std::vector<std::vector<int64_t>> pieces;
  for (const at::Tensor& piece : own) {
    pieces.emplace_back(piece.data_ptr<int64_t>(), piece.data_ptr<int64_t>() + piece.numel());
  }
  return pieces;
}

using Pieces = std::vector<std::vector<int64_t>>;

TEST(IndependentRowsTest, WorkersMakeTheirOwnRows) {
  const Shared shared = squares(9, 4);
  EXPECT_EQ(pieces_of(shared.batches, {2, 0, 1}), (Pieces{{0, 1}, {16, 25}, {64}}));
  EXPECT_EQ(*shared.made, (std::vector<int64_t>{0, 1, 4, 5, 8}));
  shared.made->clear();
  EXPECT_EQ(pieces_of(shared.batches, {2, 1, 1}), (Pieces{{4, 9}, {36, 49}, {}}));
  EXPECT_EQ(*shared.made, (std::vector<int64_t>{2, 3, 6, 7}));
}

TEST(IndependentRowsTest, ElementsAreThoseOfTheMap) {
  const Shared shared = squares(6, 4);
  EXPECT_EQ(pieces_of(shared.batches, {1, 0, 1}), (Pieces{{0, 1, 4, 9}, {16, 25}}));
  EXPECT_EQ(pieces_of(shared.batches, {1, 0, 2}), (Pieces{{0, 1}, {4, 9}, {16}, {25}}));
  EXPECT_EQ(pieces_of(shared.batches.prefetch(2), {2, 0, 1}), (Pieces{{0, 1}, {16}}));
}

TEST(IndependentRowsTest, PositionsHoldForOtherNumbersOfWorkers) {
  const auto node = detail::node_of(squares(9, 4).batches);
  EXPECT_TRUE(detail::worker_pipeline(node, {2, 0, 1}).order_is_global);
  EXPECT_TRUE(detail::worker_pipeline(node, {2, 0, 1}).reads_own_elements) << "a function may fail on one worker";
}

TEST(IndependentRowsTest, AreStatedOfAMap) { EXPECT_THROW(independent_rows(range(4).batch(2)), c10::ValueError); }

}  // namespace
}  // namespace lockstep::data
