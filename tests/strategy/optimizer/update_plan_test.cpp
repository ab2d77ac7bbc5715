#include "lockstep/strategy/optimizer/update/update_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;

using Chunks = std::vector<std::vector<UpdateChunk>>;

constexpr int64_t kAlignedElements = 16;

/// The chunks of all owners for one parameter, by their begin.
std::vector<UpdateChunk> chunks_of(const Chunks& owners, size_t parameter) {
  std::vector<UpdateChunk> chunks;
  for (const auto& owner : owners) {
    std::copy_if(owner.begin(), owner.end(), std::back_inserter(chunks),
                 [&](const UpdateChunk& chunk) { return chunk.parameter == parameter; });
  }
  std::sort(chunks.begin(), chunks.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return chunks;
}

void expect_covered_once(const Chunks& owners, const std::vector<int64_t>& sizes,
                         const std::vector<int64_t>& element_bytes) {
  for (size_t p = 0; p < sizes.size(); ++p) {
    int64_t end = 0;
    for (const UpdateChunk& chunk : chunks_of(owners, p)) {
      ASSERT_EQ(chunk.begin, end) << "parameter " << p;
      ASSERT_GT(chunk.size(), 0);
      ASSERT_LE(chunk.size() * element_bytes[p], kMaxChunkBytes);
      ASSERT_EQ(chunk.begin % kAlignedElements, 0);
      end = chunk.end;
    }
    ASSERT_EQ(end, sizes[p]) << "parameter " << p;
  }
}

void expect_balanced(const Chunks& owners, const std::vector<int64_t>& sizes) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (const auto& owner : owners) {
    int64_t count = 0;
    for (const UpdateChunk& chunk : owner) count += chunk.size();
    EXPECT_LE(count, total / static_cast<int64_t>(owners.size()) + 3 * kAlignedElements);
  }
}

TEST(PlanChunks, CoverEveryElementOnceForRandomSizes) {
  std::mt19937 random(20);
  for (int round = 0; round < 400; ++round) {
    std::vector<int64_t> sizes;
    std::vector<int64_t> element_bytes;
    const size_t count = 1 + random() % 12;
    for (size_t p = 0; p < count; ++p) {
      constexpr int64_t kLimits[] = {1, 20, 1000, 300000};
      sizes.push_back(static_cast<int64_t>(random() % kLimits[random() % 4]));
      element_bytes.push_back(int64_t{2} << random() % 3);
    }
    const int num_owners = 1 + static_cast<int>(random() % 9);
    SCOPED_TRACE(c10::str("sizes=", at::IntArrayRef(sizes), ", owners=", num_owners));
    const Chunks owners = plan_chunks(sizes, element_bytes, num_owners);
    ASSERT_EQ(owners.size(), static_cast<size_t>(num_owners));
    expect_covered_once(owners, sizes, element_bytes);
    expect_balanced(owners, sizes);
  }
}

TEST(PlanChunks, NothingToDivide) {
  EXPECT_THAT(plan_chunks({0, 0}, {4, 4}, 2), ElementsAre(ElementsAre(), ElementsAre()));
}

ReplicaParameters stored_here(std::vector<at::Tensor> parameters) {
  ReplicaParameters replica;
  replica.stored = parameters;
  replica.parameters = std::move(parameters);
  return replica;
}

TEST(PlanUpdates, OnlyFloatsOfElementwiseOptimizersAreSharded) {
  const std::vector<at::Tensor> tensors{at::zeros({40, 3}), at::zeros({4, 3}).t(), at::zeros({0}),
                                        at::zeros({5}, at::kLong), at::zeros({7}, at::kDouble)};
  const std::vector<ReplicaParameters> replicas{stored_here(tensors), stored_here(tensors)};
  const UpdatePlan plan = plan_updates(replicas, {0, 0, 1, 1, 1}, /*elementwise=*/true, 2);
  EXPECT_THAT(plan.methods, ElementsAre(UpdateMethod::Sharded, UpdateMethod::Sharded, UpdateMethod::Replicated,
                                        UpdateMethod::Replicated, UpdateMethod::Sharded));
  EXPECT_THAT(plan.groups, ElementsAre(0, 0, 1, 1, 1));
  expect_covered_once(plan.chunks, {120, 12, 0, 0, 7}, {4, 4, 4, 8, 8});
  ASSERT_EQ(plan.segments.size(), 1);
  EXPECT_EQ(plan.segments[0].begin, 0);
  EXPECT_EQ(plan.segments[0].end, 5);

  const UpdatePlan replicated = plan_updates(replicas, {0, 0, 0, 0, 0}, /*elementwise=*/false, 2);
  EXPECT_THAT(replicated.methods, ::testing::Each(UpdateMethod::Replicated));
  EXPECT_THAT(replicated.chunks, ElementsAre(ElementsAre(), ElementsAre()));
}

TEST(PlanUpdates, AParameterThatOneReplicaCannotShareIsReplicated) {
  std::vector<ReplicaParameters> replicas{stored_here({at::zeros({4, 3})}), stored_here({at::zeros({3, 4}).t()})};
  EXPECT_THAT(plan_updates(replicas, {0}, true, 2).methods, ElementsAre(UpdateMethod::Sharded));
  replicas[1].stored_once = true;
  EXPECT_THAT(plan_updates(replicas, {0}, true, 2).methods, ElementsAre(UpdateMethod::Replicated));
}

TEST(PlanUpdates, SegmentsFollowEachOtherWhereReplicasComputeElsewhere) {
  constexpr int64_t kElements = 3 << 20;
  ReplicaParameters replica;
  for (int p = 0; p < 5; ++p) {
    replica.stored.push_back(at::empty({kElements}));
    replica.parameters.push_back(at::empty({kElements}, at::kMeta));
  }
  replica.stored_once = true;
  ASSERT_TRUE(replica.computes_elsewhere());
  const UpdatePlan plan = plan_updates({replica}, std::vector<size_t>(5, 0), true, 1);
  ASSERT_EQ(plan.segments.size(), 3);
  size_t end = 0;
  for (const ParameterRange segment : plan.segments) {
    EXPECT_EQ(segment.begin, end);
    EXPECT_LT(segment.begin, segment.end);
    end = segment.end;
  }
  EXPECT_EQ(end, 5);
}

TEST(UpdateMethods, FollowSparseGradients) {
  const std::vector<at::Tensor> stored{at::zeros({4, 2}), at::zeros({4, 2}), at::zeros({}), at::zeros({4, 2})};
  const std::vector<UpdateMethod> planned{UpdateMethod::Sharded, UpdateMethod::Sharded, UpdateMethod::Sharded,
                                          UpdateMethod::Replicated};
  UpdateMethods methods(planned);
  methods.follow({kSparse, kDense, kSparse, kSparse}, stored, /*rows_known=*/true);
  EXPECT_EQ(methods[0], UpdateMethod::Rows);
  EXPECT_EQ(methods[1], UpdateMethod::Sharded);
  EXPECT_EQ(methods[2], UpdateMethod::Replicated) << "a scalar has no rows";
  EXPECT_EQ(methods[3], UpdateMethod::Replicated);
  EXPECT_EQ(methods.count(UpdateMethod::Replicated), 2);
  methods.follow({kDense, kSparse, kDense, kDense}, stored, /*rows_known=*/false);
  EXPECT_EQ(methods[0], UpdateMethod::Rows) << "a table remains one";
  EXPECT_EQ(methods[1], UpdateMethod::Replicated);
}

}  // namespace
}  // namespace lockstep::detail
