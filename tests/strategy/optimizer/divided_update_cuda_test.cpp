// What divided optimizer state takes of a GPU, by LibTorch's allocator.

#include <string>
#include <vector>

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/device/memory_use.h"
#include "lockstep/lockstep.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kWidth = 2048;
constexpr int64_t kElements = kWidth * (kWidth + 1);
constexpr int64_t kBytes = 4 * kElements;

/// Bytes of one card, after a few steps.
struct Taken {
  int64_t held = 0;
  int64_t peak = 0;
  std::vector<int64_t> state;
  torch::Tensor weight;
};

/// `keeps_gradients`: by backward and step, after which gradients are there until zero_grad.
Taken take(int replicas, Shard shard, bool keeps_gradients) {
  const c10::Device card(at::kCUDA, 0);
  std::vector<std::string> devices;
  for (int r = 0; r < replicas; ++r) devices.push_back("GPU:" + std::to_string(r));
  const MirroredStrategy strategy(devices);
  // Libraries keep a workspace for each stream.
  strategy.run([&] {
    torch::linear(torch::ones({8, kWidth}, card), torch::ones({kWidth, kWidth}, card), torch::ones({kWidth}, card));
  });
  const int64_t before = (take_peak_bytes(card), take_peak_bytes(card).value_or(0));
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  auto model = module<torch::nn::Linear>(kWidth, kWidth);
  auto adam = optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(0.01), {.shard = shard});
  for (int step = 0; step < 4; ++step) {
    if (step == 2) take_peak_bytes(card);
    strategy.run([&] {
      const torch::Tensor x = torch::ones({8, kWidth}, model->weight.options().requires_grad(false)) / kWidth;
      const torch::Tensor loss = model->forward(x * (step + 1)).square().sum() / replicas;
      if (!keeps_gradients) return adam.minimize(loss);
      adam.zero_grad();
      loss.backward();
      adam.step();
    });
  }
  Taken taken;
  taken.peak = take_peak_bytes(card).value_or(0) - before;
  taken.held = take_peak_bytes(card).value_or(0) - before;
  for (int r = 0; r < replicas; ++r) taken.state.push_back(adam.state_bytes(r));
  taken.weight = model.replica(0).weight.detach().cpu().clone();
  return taken;
}

TEST(DividedUpdateCuda, StateAndGradientsTakeTheirPart) {
  if (!at::hasCUDA() || list_physical_devices("GPU").empty()) GTEST_SKIP() << "no CUDA device";
  for (const int replicas : {2, 4}) {
    set_logical_devices("GPU", 4);
    take(replicas, Shard::None, false);  // libraries take their workspace
    for (const bool keeps_gradients : {false, true}) {
      const Taken none = take(replicas, Shard::None, keeps_gradients);
      const Taken state = take(replicas, Shard::State, keeps_gradients);
      const Taken gradients = take(replicas, Shard::Gradients, keeps_gradients);
      std::cout << replicas << " replicas on one card, " << kBytes / 1e6 << " MB of parameters each, gradients "
                << (keeps_gradients ? "kept" : "dropped") << ": held " << none.held / 1e6 << ", state "
                << state.held / 1e6 << ", gradients " << gradients.held / 1e6 << " MB; peak " << none.peak / 1e6 << ", "
                << state.peak / 1e6 << ", " << gradients.peak / 1e6 << " MB\n";
      EXPECT_TRUE(torch::equal(none.weight, state.weight));
      EXPECT_TRUE(torch::equal(none.weight, gradients.weight));
      for (int r = 0; r < replicas; ++r) {
        EXPECT_EQ(none.state[r], 2 * kBytes);
        EXPECT_NEAR(static_cast<double>(state.state[r]), 2.0 * kBytes / replicas, 4096);
        EXPECT_NEAR(static_cast<double>(gradients.state[r]), 2.0 * kBytes / replicas, 4096);
      }
      if (none.peak == 0) continue;  // the allocator does not tell
      const double slack = 4 << 20;
      EXPECT_NEAR(static_cast<double>(none.held - state.held), 2.0 * kBytes * (replicas - 1), slack);
      const double of_gradients = keeps_gradients ? static_cast<double>(kBytes) * replicas : 0;
      EXPECT_NEAR(static_cast<double>(state.held - gradients.held), of_gradients, slack);
    }
  }
}

}  // namespace
}  // namespace lockstep::detail
