// Parameters that are split over logical devices: saved, and restored into another split.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/support/test_folder.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using Counts = std::vector<int64_t>;

/// Calls `make` in the scope of the strategy.
template <class Make>
auto in_scope(const TPUStrategy& strategy, const Make& make) {
  auto scope = strategy.scope();
  return make();
}

/// A linear layer with Adam whose weight is split, or not where `counts` is empty.
struct SplitTraining {
  SplitTraining(MeshSize size, const Counts& counts, double first_value) : strategy(make_strategy(size)) {
    for (int i = 0; i < model.num_replicas(); ++i) {
      const torch::NoGradGuard no_grad;
      model.replica(i).weight.copy_(first_value + torch::arange(24.0).view({4, 6}));
    }
    if (!counts.empty()) strategy.keep_split(model, "weight", counts);
  }

  void step() {
    strategy.run(
        [&](const torch::Tensor& x) {
          adam.minimize(average_loss(model->forward(x).sum(1), 4));
          return 0;
        },
        split_batch(strategy, torch::ones({4, 6})));
  }
  Checkpoint checkpoint() const { return Checkpoint({{"model", model}, {"adam", adam}}); }
  torch::Tensor weight() { return model.replica(0).weight.detach().cpu(); }

  TPUStrategy strategy;
  Module<torch::nn::Linear> model = in_scope(strategy, [] { return module<torch::nn::Linear>(6, 4); });
  Optimizer<torch::optim::Adam> adam =
      in_scope(strategy, [&] { return optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(0.1)); });
};

TEST(SplitStateTest, IsRestoredIntoAnotherSplit) {
  LOCKSTEP_NEEDS_DEVICES(kNumDevices);
  const tests::TestFolder folder;
  SplitTraining first({1, 2}, {2, 1}, 0);
  first.step();
  {
    CheckpointManager manager(first.checkpoint(), folder.path());
    manager.save(1);
    manager.wait();
  }
  const torch::Tensor saved = load_file(folder / "step_0000000001").tensor("model.weight").read();
  EXPECT_TRUE(torch::equal(saved, first.weight()));
  first.step();
  for (const Counts& counts : {Counts{1, 2}, Counts{2, 1}, Counts{}}) {
    SplitTraining other({1, 2}, counts, 100);
    CheckpointManager manager(other.checkpoint(), folder.path());
    EXPECT_EQ(manager.restore_latest(), 1);
    EXPECT_TRUE(torch::equal(other.weight(), saved));
    other.step();
    EXPECT_TRUE(torch::equal(other.weight(), first.weight()));
  }
}

}  // namespace
}  // namespace lockstep::xla::test
