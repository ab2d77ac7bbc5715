#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using tests::mirrored;
using tests::replica_id;

class ReplicaCollectivesTest : public tests::ReplicasTest {};

/// Numbers that differ for each replica.
at::Tensor own_numbers(int64_t count, int replica) {
  return at::arange(count, at::kDouble).add(1).mul(replica + 1).sin();
}

std::vector<at::Tensor> numbers_of_all(int64_t count, int replicas) {
  std::vector<at::Tensor> all;
  for (int r = 0; r < replicas; ++r) all.push_back(own_numbers(count, r));
  return all;
}

TEST_F(ReplicaCollectivesTest, NestsAreReducedLeafByLeaf) {
  using Nest =
      std::tuple<at::Tensor, std::vector<at::Tensor>, std::map<std::string, double>, std::optional<at::Tensor>>;
  const MirroredStrategy strategy = mirrored(3);
  strategy.run([] {
    const at::Tensor own = at::full({2}, replica_id() + 1.0);
    const Nest sums =
        get_replica_context().all_reduce("sum", Nest{own, {own * 2}, {{"x", replica_id()}}, std::nullopt});
    const auto& [tensor, list, map, nothing] = sums;
    EXPECT_TRUE(tensor.equal(at::full({2}, 6.0)));
    EXPECT_TRUE(list.at(0).equal(at::full({2}, 12.0)));
    EXPECT_EQ(map.at("x"), 3.0);
    EXPECT_FALSE(nothing.has_value());
  });
}

TEST_F(ReplicaCollectivesTest, Numbers) {
  const MirroredStrategy strategy = mirrored(4);
  strategy.run([] {
    const ReplicaContext context = get_replica_context();
    EXPECT_EQ(context.all_reduce("sum", replica_id()), 6);
    EXPECT_EQ(context.all_reduce("max", replica_id()), 3);
    EXPECT_EQ(context.all_reduce("mean", static_cast<double>(replica_id())), 1.5);
    EXPECT_EQ(context.all_reduce("mean", at::scalar_tensor(replica_id(), at::kInt)).scalar_type(), at::kDouble);
  });
  EXPECT_THROW(strategy.run([] { return get_replica_context().all_reduce("mean", replica_id()); }), c10::TypeError);
}

TEST_F(ReplicaCollectivesTest, GatherOfNestsOfAllTypes) {
  for (int replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    const MirroredStrategy strategy = mirrored(replicas);
    for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kByte, at::kBool, at::kLong}) {
      std::vector<at::Tensor> all;
      for (int r = 0; r < replicas; ++r) all.push_back(at::full({2, r}, r + 1).to(type));
      strategy.run([&] {
        const at::Tensor& own = all[replica_id()];
        const auto gathered = get_replica_context().all_gather(std::vector<at::Tensor>{own, own}, -1);
        EXPECT_TRUE(gathered.at(0).equal(at::cat(all, 1)) && gathered.at(1).equal(at::cat(all, 1)));
        EXPECT_TRUE(get_replica_context().all_gather(own.t(), 0).equal(at::cat(all, 1).t()));
      });
    }
  }
}

TEST_F(ReplicaCollectivesTest, WhatCannotBeGathered) {
  const MirroredStrategy strategy = mirrored(2);
  const auto gather = [&](auto value, int64_t axis) {
    strategy.run([&] { get_replica_context().all_gather(value, axis); });
  };
  EXPECT_THROW(gather(at::scalar_tensor(1.0), 0), c10::ValueError);
  EXPECT_THROW(gather(at::ones({2}), 1), c10::ValueError);
  EXPECT_THROW(gather(IndexedSlices{at::tensor({0}), at::ones({1, 2}), {3, 2}}, 0), c10::NotImplementedError);
  EXPECT_THROW(strategy.run([] { get_replica_context().all_gather(at::ones({1, replica_id() + 1}), 0); }), c10::Error);
}

TEST_F(ReplicaCollectivesTest, GradientOfAllReduceIsTheAllReduceOfTheGradients) {
  for (int replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    const MirroredStrategy strategy = mirrored(replicas);
    const at::Tensor weights = at::stack(numbers_of_all(4, replicas));
    for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Mean}) {
      const at::Tensor expected = op == ReduceOp::Sum ? weights.sum(0) : weights.mean(0);
      strategy.run([&] {
        at::Tensor x = at::ones({4}, at::kDouble).set_requires_grad(true);
        (get_replica_context().all_reduce(op, x) * weights[replica_id()]).sum().backward();
        EXPECT_TRUE(at::allclose(x.grad(), expected)) << "replicas=" << replicas << " op=" << op;
      });
    }
  }
}

TEST_F(ReplicaCollectivesTest, GradientThroughOneLeafOfMany) {
  const MirroredStrategy strategy = mirrored(2);
  strategy.run([] {
    at::Tensor x = at::ones({2}).set_requires_grad(true);
    at::Tensor unused = at::ones({3}).set_requires_grad(true);
    const auto sums = get_replica_context().all_reduce("sum", std::vector<at::Tensor>{x * 2, unused, at::ones({1})});
    sums[0].sum().backward();
    EXPECT_TRUE(x.grad().equal(at::full({2}, 4.0)));
  });
}

TEST_F(ReplicaCollectivesTest, GradientOfUnevenGatherIsTheOwnSliceOfTheSum) {
  for (int replicas = 2; replicas <= kMaxReplicas; ++replicas) {
    const MirroredStrategy strategy = mirrored(replicas);
    const int64_t total = replicas * (replicas + 1) / 2;
    const at::Tensor weights = at::stack(numbers_of_all(total, replicas));
    strategy.run([&] {
      const int id = replica_id();
      at::Tensor x = at::ones({1, id + 1}, at::kDouble).set_requires_grad(true);
      const at::Tensor all = get_replica_context().all_gather(x, -1);
      (all * weights[id]).sum().backward();
      EXPECT_TRUE(at::allclose(x.grad()[0], weights.sum(0).narrow(0, id * (id + 1) / 2, id + 1)));
    });
  }
}

TEST_F(ReplicaCollectivesTest, GradientsHaveGradients) {
  const MirroredStrategy strategy = mirrored(3);
  strategy.run([] {
    // y is the sum of x³ over replicas on each of them, and all of them sum y²: the gradient of 3·y² is 6·y·3·x².
    const double own = replica_id() + 1.0;
    at::Tensor x = at::full({}, own, at::kDouble).set_requires_grad(true);
    const at::Tensor y = get_replica_context().all_reduce("sum", x.pow(3));
    const at::Tensor slope = torch::autograd::grad({y.pow(2)}, {x}, {}, {}, /*create_graph=*/true)[0];
    const double total = 1 + 8 + 27;
    EXPECT_NEAR(slope.item<double>(), 18 * total * own * own, 1e-9);
    const at::Tensor curvature = torch::autograd::grad({slope}, {x})[0];
    // Each replica differentiates the sum of all slopes: Σ_r 18·y·x_r², with dy/dx = 3·x².
    EXPECT_NEAR(curvature.item<double>(), 3 * own * own * 18 * (1 + 4 + 9) + 36 * total * own, 1e-9);
  });
}

TEST_F(ReplicaCollectivesTest, GradientsOfGathersHaveGradients) {
  const MirroredStrategy strategy = mirrored(2);
  strategy.run([] {
    const int id = replica_id();
    at::Tensor x = at::full({id + 1}, id + 2.0, at::kDouble).set_requires_grad(true);
    const at::Tensor all = get_replica_context().all_gather(x, 0);
    const at::Tensor slope = torch::autograd::grad({all.pow(3).sum()}, {x}, {}, {}, true)[0];
    EXPECT_TRUE(at::allclose(slope, 2 * 3 * x.detach().pow(2))) << "both replicas add their cubes";
    const at::Tensor curvature = torch::autograd::grad({slope.sum()}, {x})[0];
    EXPECT_TRUE(at::allclose(curvature, 2 * 6 * x.detach())) << curvature;
  });
}

TEST_F(ReplicaCollectivesTest, BackwardMayOutliveTheStrategy) {
  at::Tensor loss;
  {
    const MirroredStrategy strategy = mirrored(2);
    const auto losses = strategy.run([] {
      const at::Tensor x = at::ones({2}).set_requires_grad(true);
      return get_replica_context().all_reduce("sum", x).sum();
    });
    loss = losses[0];
  }
  EXPECT_THROW(loss.backward(), CollectiveError) << "the other replica is gone";
}

TEST_F(ReplicaCollectivesTest, BackwardHasTheTimeoutOfItsCall) {
  const MirroredStrategy strategy = mirrored(2);
  std::atomic<bool> late = false;
  const auto step = [&] {
    const at::Tensor x = at::ones({2}).set_requires_grad(true);
    const at::Tensor sum = get_replica_context().all_reduce("sum", x, {.timeout_seconds = 0.05});
    if (replica_id() == 1) {
      while (!late) std::this_thread::yield();
      return;
    }
    try {
      sum.sum().backward();
    } catch (const CollectiveError& error) {
      EXPECT_NE(std::string(error.what()).find("timeout=0.05 s"), std::string::npos) << error.what();
      late = true;
      throw;
    }
    ADD_FAILURE() << "replica 1 takes no part";
    late = true;
  };
  EXPECT_THROW(strategy.run(step), CollectiveError);
}

TEST_F(ReplicaCollectivesTest, MinAndMaxHaveNoGradient) {
  const MirroredStrategy strategy = mirrored(2);
  EXPECT_THROW(strategy.run([] {
    at::Tensor x = at::ones({2}).set_requires_grad(true);
    get_replica_context().all_reduce("max", x).sum().backward();
  }),
               c10::NotImplementedError);
}

TEST_F(ReplicaCollectivesTest, SlicesAreConcatenatedInReplicaOrder) {
  const MirroredStrategy strategy = mirrored(3);
  const auto own_slices = [] {
    const int id = replica_id();
    return IndexedSlices{at::arange(id + 1), at::full({id + 1, 2}, id + 1.0), {4, 2}};
  };
  strategy.run([&] {
    const ReplicaContext context = get_replica_context();
    const IndexedSlices sum = context.all_reduce("sum", own_slices());
    EXPECT_TRUE(sum.indices.equal(at::tensor({0, 0, 1, 0, 1, 2}, at::kLong)));
    EXPECT_TRUE(sum.to_dense().equal(context.all_reduce("sum", own_slices().to_dense())));
    const IndexedSlices mean = context.all_reduce("mean", own_slices());
    EXPECT_TRUE(at::allclose(mean.to_dense() * 3, sum.to_dense()));
    const auto [dense, sparse] = context.all_reduce("sum", std::tuple(at::ones({1}), own_slices()));
    EXPECT_EQ(dense.item<float>(), 3);
    EXPECT_EQ(sparse.indices.numel(), 6);
  });
}

TEST_F(ReplicaCollectivesTest, DifferentCallsAreAnErrorThatNamesBoth) {
  const MirroredStrategy strategy = mirrored(2);
  EXPECT_THROW(strategy.run([] { get_replica_context().all_reduce("sum", at::ones({replica_id() + 1})); }),
               CollectiveError);
  EXPECT_THROW(strategy.run([] {
    if (replica_id() == 0) get_replica_context().all_reduce("sum", at::ones({1}));
  }),
               CollectiveError);
  EXPECT_EQ(strategy.run([] { return get_replica_context().all_reduce("sum", 1); })[0], 2) << "and the next run works";
}

TEST_F(ReplicaCollectivesTest, OptionsAreHints) {
  const MirroredStrategy strategy = mirrored(2);
  for (int64_t bytes : {0, 1, 1000}) {
    for (std::optional<double> timeout : {std::optional<double>(), std::optional(0.0), std::optional(5.0)}) {
      const CommunicationOptions options{.bytes_per_pack = bytes, .timeout_seconds = timeout};
      const auto sums = strategy.run([&] {
        return get_replica_context().all_reduce("sum", std::vector<at::Tensor>{at::ones({2}), at::ones({})}, options);
      });
      EXPECT_TRUE(sums[0][0].equal(at::full({2}, 2.0f)));
      EXPECT_EQ(sums[1][1].item<float>(), 2);
    }
  }
  EXPECT_THROW(strategy.run([] { get_replica_context().all_reduce("sum", 1, {.bytes_per_pack = -1}); }),
               c10::ValueError);
}

TEST_F(ReplicaCollectivesTest, PacksAreCollectivesOfTheirOwn) {
  const MirroredStrategy strategy = mirrored(2);
  const auto num_calls = [&](int64_t bytes_per_pack) {
    const comm::Recorder& recorder = detail::Access::impl(strategy).rendezvous().recorder();
    const auto last = [&] {
      const auto entries = recorder.entries(0);
      return entries.empty() ? 0 : entries.back().sequence;
    };
    const auto before = last();
    strategy.run([&] {
      const std::vector<at::Tensor> four(4, at::ones({2}));  // 8 bytes each
      get_replica_context().all_reduce("sum", four, {.bytes_per_pack = bytes_per_pack});
    });
    return last() - before;
  };
  EXPECT_EQ(num_calls(0), 1u);
  EXPECT_EQ(num_calls(1), 4u);
  EXPECT_EQ(num_calls(8), 2u) << "a pack is closed when it is larger";
  EXPECT_EQ(num_calls(1000), 1u);
}

TEST_F(ReplicaCollectivesTest, NcclCannotCarryTensorsOfTheCpu) {
  const MirroredStrategy strategy = mirrored(2);
  EXPECT_THROW(strategy.run([] { get_replica_context().all_reduce("sum", at::ones({2}), {.implementation = "nccl"}); }),
               c10::ValueError);
  EXPECT_THROW(strategy.run([] { get_replica_context().all_gather(at::ones({2}), 0, {.implementation = "nccl"}); }),
               c10::ValueError);
  EXPECT_EQ(strategy.run([] { return get_replica_context().all_reduce("sum", 1, {.implementation = "ring"}); })[0], 2);
}

/// Replicas differentiate twice through `collective`, as one program does through `plain` of all replicas' tensors.
void expect_second_derivatives(const std::function<at::Tensor(const at::Tensor&)>& collective,
                               const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& plain) {
  constexpr int kReplicas = 3;
  const auto value_of = [](int replica) { return own_numbers(6, replica).view({3, 2}); };
  const auto loss_of = [](const at::Tensor& result, int replica) {
    return (result.pow(3) * own_numbers(result.numel(), replica + 5).view(result.sizes())).sum();
  };
  std::vector<at::Tensor> all;
  for (int r = 0; r < kReplicas; ++r) all.push_back(value_of(r).set_requires_grad(true));
  const auto results = plain(all);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int r = 0; r < kReplicas; ++r) loss = loss + loss_of(results[r], r);
  at::Tensor square = at::zeros({}, at::kDouble);
  for (const auto& slope : torch::autograd::grad({loss}, all, {}, true, true)) square = square + slope.square().sum();
  const auto wanted = torch::autograd::grad({square}, all);
  mirrored(kReplicas).run([&] {
    at::Tensor x = value_of(replica_id()).set_requires_grad(true);
    const auto slope = torch::autograd::grad({loss_of(collective(x), replica_id())}, {x}, {}, true, true)[0];
    const auto curvature = torch::autograd::grad({slope.square().sum()}, {x})[0];
    EXPECT_TRUE(at::allclose(curvature, wanted[replica_id()])) << curvature << wanted[replica_id()];
  });
}

TEST_F(ReplicaCollectivesTest, SecondDerivativesOfBroadcast) {
  expect_second_derivatives(
      [](const at::Tensor& x) { return get_replica_context().broadcast(x, 1); },
      [](const std::vector<at::Tensor>& all) { return std::vector<at::Tensor>(3, all[1] + 0 * all[0] + 0 * all[2]); });
}

TEST_F(ReplicaCollectivesTest, SecondDerivativesOfReduceScatter) {
  expect_second_derivatives([](const at::Tensor& x) { return get_replica_context().reduce_scatter("mean", x); },
                            [](const std::vector<at::Tensor>& all) { return at::stack(all).mean(0).split(1); });
}

TEST_F(ReplicaCollectivesTest, SecondDerivativesOfAllToAll) {
  expect_second_derivatives([](const at::Tensor& x) { return get_replica_context().all_to_all(x); },
                            [](const std::vector<at::Tensor>& all) {
                              std::vector<at::Tensor> results;
                              for (int r = 0; r < 3; ++r) {
                                results.push_back(at::cat({all[0][r], all[1][r], all[2][r]}).view({3, 2}));
                              }
                              return results;
                            });
}

TEST_F(ReplicaCollectivesTest, SlicesAreReducedWithinGroups) {
  const ReplicaGroups groups({{0, 2}, {1, 3}});
  mirrored(4).run([&] {
    const IndexedSlices own{
        at::full({1}, replica_id(), at::kLong), at::full({1, 2}, replica_id() + 1.0, at::kDouble), {4, 2}};
    const IndexedSlices mean = get_replica_context().within(groups).all_reduce("mean", own);
    const int64_t first = replica_id() % 2;
    EXPECT_TRUE(mean.indices.equal(at::arange(2).mul(2).add(first)));
    EXPECT_TRUE(mean.values.equal(at::arange(2, at::kDouble).mul(2).add(first + 1).view({2, 1}).expand({2, 2}).div(2)));
  });
}

TEST_F(ReplicaCollectivesTest, CollectivesWithinGroupsEndWithTheirRun) {
  const MirroredStrategy strategy = mirrored(2);
  const ReplicaGroups groups({{0, 1}});
  EXPECT_THROW(ReplicaContext().within(groups), ContextError);
  std::optional<Collectives> kept;
  strategy.run([&] {
    if (replica_id() == 0) kept = get_replica_context().within(groups);
  });
  EXPECT_THROW(kept->all_reduce("sum", 1), ContextError);
  EXPECT_THROW(kept->barrier(), ContextError);
}

}  // namespace
}  // namespace lockstep
