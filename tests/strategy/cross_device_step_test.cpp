// Cross-device operations of the user: they reduce everywhere, in `reduce`, in replicas and in the optimizer's step.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <c10/util/ScopeExit.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using tests::mirrored;
using tests::replica_id;

/// Adds as usual, and doubles the result.
class DoublingOps : public CrossDeviceOps {
 public:
  const char* name() const override { return "DoublingOps"; }
  /// Numbers of values of each batch.
  mutable std::vector<size_t> batches;
  mutable std::atomic<int> reductions = 0;

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override {
    ++reductions;
    at::Tensor sum = at::stack(components).sum(0);
    if (op == ReduceOp::Mean) sum = sum / static_cast<double>(components.size());
    return sum.to(device) * 2;
  }
  std::vector<at::Tensor> do_batch_reduce(ReduceOp op, const std::vector<Components>& values) const override {
    batches.push_back(values.size());
    return CrossDeviceOps::do_batch_reduce(op, values);
  }
};

class FailingOps final : public DoublingOps {
 protected:
  at::Tensor do_reduce(ReduceOp, at::ArrayRef<at::Tensor>, c10::Device) const override {
    throw std::runtime_error("the link is down");
  }
};

class CrossDeviceStepTest : public tests::ReplicasTest {
 protected:
  static MirroredStrategy with(std::shared_ptr<const CrossDeviceOps> ops, int replicas = 2) {
    std::vector<std::string> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
    return MirroredStrategy(devices, std::move(ops));
  }

  /// Makes one step of w -= gradient of the sum of (replica + 1)·w + 10·v, and returns w and v.
  static std::vector<float> step(const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable w(0.0);
    const Variable v(0.0);
    auto sgd = optimizer<torch::optim::SGD>(std::vector{w, v}, 1.0);
    strategy.run([&] { sgd.minimize(w * (replica_id() + 1.0) + v * 10); });
    for (const Variable& variable : {w, v}) {
      for (const at::Tensor& copy : variable.components()) EXPECT_TRUE(copy.equal(variable.components()[0]));
    }
    return {w.components()[0].item<float>(), v.components()[0].item<float>()};
  }
};

TEST_F(CrossDeviceStepTest, UpdatesHaveTheTimeoutOfTheStrategy) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"}, nullptr, {.timeout_seconds = 0.05});
  const auto scope = strategy.scope();
  const Variable w(0.0);
  auto sgd = optimizer<torch::optim::SGD>(std::vector{w}, 1.0);
  std::atomic<bool> has_failed = false;
  EXPECT_THROW(strategy.run([&] {
    if (replica_id() == 1) {
      while (!has_failed) std::this_thread::yield();
      return;
    }
    const auto at_end = c10::make_scope_exit([&] { has_failed = true; });
    try {
      sgd.minimize(w * 1.0);
    } catch (const CollectiveError& error) {
      EXPECT_NE(std::string(error.what()).find("timeout=0.05 s"), std::string::npos) << error.what();
      throw;
    }
  }),
               CollectiveError);
}

TEST_F(CrossDeviceStepTest, GradientsGoThroughTheUsersOperations) {
  const auto ops = std::make_shared<DoublingOps>();
  EXPECT_EQ(step(with(ops)), (std::vector<float>{-2 * (1 + 2), -2 * (10 + 10)}));
  EXPECT_EQ(ops->batches, (std::vector<size_t>{2})) << "all gradients of the step in one batch";
  EXPECT_EQ(step(mirrored(2)), (std::vector<float>{-(1 + 2), -(10 + 10)}));
}

TEST_F(CrossDeviceStepTest, AnAccumulationFunctionIsUsedInTheStep) {
  const auto first =
      std::make_shared<ReductionToOneDevice>("", [](const std::vector<at::Tensor>& values) { return values.at(0); });
  EXPECT_EQ(step(with(first)), (std::vector<float>{-1, -10}));
}

TEST_F(CrossDeviceStepTest, ReplicasReduceWithThem) {
  const auto ops = std::make_shared<DoublingOps>();
  const MirroredStrategy strategy = with(ops, 3);
  const auto sums = strategy.run([] {
    at::Tensor x = at::full({2}, replica_id() + 1.0).set_requires_grad(true);
    const at::Tensor sum = get_replica_context().all_reduce("sum", x);
    sum.sum().backward();
    EXPECT_TRUE(x.grad().equal(at::full({2}, 6.0))) << "the backward pass is an all-reduce, too";
    EXPECT_EQ(get_replica_context().all_reduce("mean", 4.0), 8.0);
    EXPECT_EQ(get_replica_context().all_gather(x.detach(), 0).numel(), 6);
    return sum;
  });
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(sums[r].equal(at::full({2}, 12.0)));
  EXPECT_TRUE(strategy.reduce("sum", sums).equal(at::full({2}, 72.0)));
  const auto scope = strategy.scope();
  const Variable variable(0.0, {.aggregation = VariableAggregation::Sum});
  strategy.run([&] { variable.assign(at::ones({})); });
  EXPECT_EQ(variable.components()[2].item<float>(), 6) << "writes of replicas are combined by them";
}

TEST_F(CrossDeviceStepTest, SparseGradientsAreConcatenated) {
  const auto ops = std::make_shared<DoublingOps>();
  const MirroredStrategy strategy = with(ops);
  const auto scope = strategy.scope();
  auto table = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(4, 2).sparse(true));
  auto sgd = optimizer<torch::optim::SGD>(table, 1.0);
  const at::Tensor before = table.replica(0).weight.detach().clone();
  strategy.run([&] { sgd.minimize(table(at::tensor({replica_id()})).sum()); });
  const at::Tensor moved = before - table.replica(1).weight.detach();
  EXPECT_TRUE(at::allclose(moved.select(1, 0), at::tensor({1.0f, 1.0f, 0.0f, 0.0f})));
  EXPECT_EQ(ops->reductions, 0);
}

TEST_F(CrossDeviceStepTest, AnErrorOfTheirsIsTheErrorOfTheStep) {
  const MirroredStrategy strategy = with(std::make_shared<FailingOps>());
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(
        {
          try {
            strategy.run([] { get_replica_context().all_reduce("sum", at::ones({1})); });
          } catch (const std::runtime_error& error) {
            EXPECT_STREQ(error.what(), "the link is down");
            throw;
          }
        },
        std::runtime_error);
  }
}

TEST_F(CrossDeviceStepTest, OperationsOfLockstepDoNotChangeTheStep) {
  const std::vector<std::shared_ptr<const CrossDeviceOps>> ours{
      std::make_shared<ReductionToOneDevice>("CPU:1"), std::make_shared<HierarchicalCopyAllReduce>(2), nullptr};
  for (const auto& ops : ours) {
    const MirroredStrategy strategy = with(ops);
    EXPECT_FALSE(detail::Access::impl(strategy).reduces_with_cross_device_ops());
    EXPECT_EQ(step(strategy), (std::vector<float>{-3, -20}));
  }
  EXPECT_TRUE(detail::Access::impl(with(std::make_shared<DoublingOps>())).reduces_with_cross_device_ops());
}

}  // namespace
}  // namespace lockstep
