// Hooks and backward functions of a replica belong to it, on whatever thread LibTorch calls them.

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class BackwardContextTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  static ReplicaContext context() { return get_replica_context(); }
  static int own_id() { return context().replica_id_in_sync_group(); }
  double sum_of_ids() const { return named.replicas * (named.replicas + 1) / 2.0; }

  torch::Tensor own_leaf() const {
    return torch::full({2}, own_id() + 1, torch::kDouble).to(named.device).requires_grad_();
  }

  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
};

TEST_P(BackwardContextTest, HooksMakeCollectives) {
  const auto gradients = strategy.local_results(strategy.run([&] {
    const ReplicaContext kept = context();
    auto x = own_leaf();
    auto y = x * 2;
    y.register_hook([&](const torch::Tensor& gradient) {
      EXPECT_EQ(own_id(), kept.replica_id_in_sync_group());
      return kept.all_reduce("sum", context().all_reduce("sum", gradient * (own_id() + 1)));
    });
    y.sum().backward();
    return x.grad();
  }));
  for (const auto& gradient : gradients) {
    EXPECT_EQ(gradient[0].item<double>(), 2 * sum_of_ids() * named.replicas) << gradient;
  }
}

TEST_P(BackwardContextTest, HooksReadValues) {
  strategy.run([&] {
    auto x = own_leaf();
    auto y = x * 2;
    y.register_hook([&](const torch::Tensor& gradient) {
      EXPECT_EQ(context().all_reduce("sum", gradient * (own_id() + 1))[0].item<double>(), sum_of_ids());
      EXPECT_EQ(context().all_reduce("sum", 1), named.replicas);
    });
    y.sum().backward();
    EXPECT_EQ(x.grad()[0].item<double>(), 2);
  });
}

/// Divides by the mean over all replicas.
struct DivideByMean : torch::autograd::Function<DivideByMean> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x) {
    const auto mean = get_replica_context().all_reduce("mean", x.detach());
    ctx->save_for_backward({x, mean});
    return x / mean;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const ReplicaContext context = get_replica_context();
    const auto of_mean = context.all_reduce("sum", -gradients[0] * saved[0] / (saved[1] * saved[1]));
    return {gradients[0] / saved[1] + of_mean / context.num_replicas_in_sync()};
  }
};

TEST_P(BackwardContextTest, FunctionsOverAllReplicas) {
  const auto weights = torch::arange(1.0, named.replicas + 1.0, torch::kDouble);
  auto plain = torch::arange(1.0, named.replicas + 1.0, torch::kDouble).requires_grad_();
  (plain / plain.mean() * weights * weights).sum().backward();
  const auto gradients = strategy.local_results(strategy.run([&] {
    auto x = own_leaf();
    (DivideByMean::apply(x) * (own_id() + 1) * (own_id() + 1)).sum().backward();
    return x.grad();
  }));
  for (int i = 0; i < named.local; ++i) {
    EXPECT_NEAR(gradients[i][0].item<double>(), plain.grad()[named.first + i].item<double>(), 1e-12);
  }
}

const Module<Mlp>* checkpointed = nullptr;

/// Keeps nothing of the forward pass, and computes it again in the backward pass.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x, const torch::Tensor& /*trains*/) {
    ctx->save_for_backward({x});
    return (*checkpointed)->forward(x).detach();
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const torch::AutoGradMode on(true);
    const auto x = ctx->get_saved_variables()[0].detach();
    (*checkpointed)->forward(x).backward(gradients[0]);
    return {torch::Tensor(), torch::Tensor()};
  }
};

TEST_P(BackwardContextTest, CheckpointsThroughTheHandle) {
  torch::manual_seed(5);
  const auto x = torch::randn({12, 36}, torch::kDouble);
  const auto y = torch::randint(5, {12}, torch::kLong);
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  checkpointed = &model;
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (int step = 0; step < 2; ++step) {
    reference.zero_grad();
    torch::nll_loss(plain->forward(x), y).backward();
    reference.step();
    strategy.run(
        [&](const torch::Tensor& a, const torch::Tensor& b) {
          sgd.zero_grad();
          const auto trains = torch::ones({1}, a.options()).requires_grad_();
          const auto scores = Checkpoint::apply(a, trains);
          average_loss(torch::nll_loss(scores, b, {}, torch::Reduction::None), x.size(0)).backward();
          sgd.step();
        },
        split(named, x), split(named, y));
  }
  for (int i = 0; i < model.num_replicas(); ++i) {
    EXPECT_TRUE(torch::allclose(model.replica(i).first->weight.cpu(), plain->first->weight, 1e-9, 1e-9));
  }
}

TEST_P(BackwardContextTest, TensorsOfHooksAreMadeForTheReplica) {
  std::vector<torch::Tensor> drawn[2];
  for (auto& of_call : drawn) {
    torch::manual_seed(7);
    const auto results = strategy.local_results(strategy.run([&] {
      auto x = own_leaf();
      auto y = x * 2;
      y.register_hook([&](const torch::Tensor& gradient) {
        EXPECT_TRUE(named.is_on_device(torch::zeros({2})));
        EXPECT_EQ(context().devices(), std::vector<std::string>{current_device()});
        return gradient * torch::rand({2}, torch::kDouble);
      });
      y.sum().backward();
      return x.grad();
    }));
    for (const auto& result : results) of_call.push_back(result.cpu());
  }
  for (size_t i = 0; i < drawn[0].size(); ++i) EXPECT_TRUE(torch::equal(drawn[0][i], drawn[1][i]));
  for (size_t i = 1; i < drawn[0].size(); ++i) EXPECT_FALSE(torch::equal(drawn[0][i], drawn[0][0]));
}

TEST_P(BackwardContextTest, MergeFunctionsBelongToNoReplica) {
  strategy.run([&] {
    context().merge_call([&](const Strategy&) {
      auto x = torch::ones({2}, torch::TensorOptions(torch::kDouble).device(named.device_of(0))).requires_grad_();
      auto y = x * 2;
      y.register_hook([&](const torch::Tensor&) { EXPECT_TRUE(in_cross_replica_context()); });
      y.sum().backward();
    });
    EXPECT_FALSE(in_cross_replica_context());
  });
}

TEST_P(BackwardContextTest, ThreadsThatAReplicaStartsBelongToNone) {
  if (named.local == 1) GTEST_SKIP() << "one local replica";
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(2, 2);
  strategy.run([&] {
    std::thread([&] {
      EXPECT_THROW(model->weight, ContextError);
      EXPECT_THROW(get_replica_context(), ContextError);
    }).join();
  });
}

constexpr TpuSize kBackwardSizes[] = {{1, 1}, {2, 1}};
INSTANTIATE_TEST_SUITE_P(Strategies, BackwardContextTest, ::testing::ValuesIn(all_strategies(kBackwardSizes)),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
