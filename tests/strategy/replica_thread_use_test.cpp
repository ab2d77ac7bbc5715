// What threads see that belong to no replica, inside and outside of runs.

#include <thread>

#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using tests::mirrored;
using tests::replica_id;

class ReplicaThreadUseTest : public tests::ReplicasTest {};

/// Calls `fn` on a thread of its own; rethrows what it throws.
template <class F>
void on_another_thread(F&& fn) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      fn();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

TEST_F(ReplicaThreadUseTest, AThreadThatAReplicaStartsHasNoModule) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (int replica = 0; replica < 2; ++replica) {
    strategy.run([&] {
      if (replica_id() != replica) return;
      EXPECT_THROW(on_another_thread([&] { model->parameters(); }), ContextError);
      EXPECT_THROW(on_another_thread([&] { model(at::ones({1, 4})); }), ContextError);
      EXPECT_THROW(on_another_thread([&] { sgd.zero_grad(); }), ContextError);
      EXPECT_THROW(on_another_thread([&] { get_replica_context(); }), ContextError);
    });
  }
}

TEST_F(ReplicaThreadUseTest, ItUsesTheModuleThatTheReplicaTookBefore) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  strategy.run([&] {
    auto& own = *model;
    const int replica = replica_id();
    on_another_thread([&] {
      EXPECT_TRUE(own.weight.is_same(model.replica(replica).weight));
      own.forward(at::ones({1, 4}));
    });
  });
}

TEST_F(ReplicaThreadUseTest, OutsideOfRunsAnyThreadUsesTheFirstReplica) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  strategy.run([] {});
  EXPECT_THROW(strategy.run([] { throw std::runtime_error("failed"); }), std::runtime_error);
  on_another_thread([&] {
    EXPECT_TRUE(model->weight.is_same(model.replica(0).weight));
    EXPECT_EQ(get_replica_context().num_replicas_in_sync(), 1);
  });
}

TEST_F(ReplicaThreadUseTest, OneReplicaHasOneModule) {
  const auto strategy = mirrored(1);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  strategy.run([&] { on_another_thread([&] { model(at::ones({1, 4})); }); });
}

TEST_F(ReplicaThreadUseTest, InputPipelinesMayUseAModule) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto frozen = module<torch::nn::Linear>(4, 2);
  const auto numbers = data::from_tensor_slices(at::ones({64, 4}))
                           .map([&](at::Tensor row) { return frozen(row).detach(); }, {.num_threads = 2})
                           .batch(4)
                           .prefetch(2);
  auto input = strategy.distribute_dataset(numbers);
  for (const auto& batch : input) strategy.run([](at::Tensor rows) { EXPECT_EQ(rows.size(1), 2); }, batch);
}

TEST_F(ReplicaThreadUseTest, AMergeFunctionSeesTheFirstReplica) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  strategy.run([&] {
    get_replica_context().merge_call([&](const Strategy&) {
      EXPECT_TRUE(model->weight.is_same(model.replica(0).weight));
      return 0;
    });
  });
}

}  // namespace
}  // namespace lockstep
