// LSTM, GRU and simple recurrent layers: one loop for each layer and direction, however long the sequence is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/program.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

/// Predicts the class of each token.
struct TaggerImpl : torch::nn::Module {
  TaggerImpl(int64_t layers, bool bidirectional)
      : lstm(torch::nn::LSTMOptions(8, 6).num_layers(layers).bidirectional(bidirectional).batch_first(true)),
        out(bidirectional ? 12 : 6, 5) {
    register_module("tokens", tokens);
    register_module("lstm", lstm);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::log_softmax(out->forward(std::get<0>(lstm->forward(tokens->forward(x)))), 2);
  }
  torch::nn::Embedding tokens{11, 8};
  torch::nn::LSTM lstm;
  torch::nn::Linear out;
};
TORCH_MODULE(Tagger);

class RecurrentTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_DEVICES(2); }
};

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

torch::Tensor loss_of(const torch::Tensor& prediction, const torch::Tensor& y) {
  return torch::nll_loss(prediction.reshape({-1, 5}), y.reshape(-1), {}, torch::Reduction::None)
      .view(y.sizes())
      .mean(1);
}

/// Trains on replicas and without them; the losses of both.
void expect_same_training(MeshSize size, int64_t layers, bool bidirectional, int64_t length) {
  constexpr int64_t kBatch = 4;
  const TPUStrategy strategy = make_strategy(size);
  torch::manual_seed(9);
  auto scope = strategy.scope();
  auto model = module<Tagger>(layers, bidirectional);
  torch::manual_seed(9);
  Tagger alone(layers, bidirectional);
  const auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.5));
  torch::optim::SGD alone_sgd(alone->parameters(), torch::optim::SGDOptions(0.5));
  for (int i = 0; i < 3; ++i) {
    const auto x = torch::randint(11, {kBatch, length}, torch::kLong),
               y = torch::randint(5, {kBatch, length}, torch::kLong);
    const auto loss = strategy.run(
        [&](const torch::Tensor& own_x, const torch::Tensor& own_y) {
          const auto mean = average_loss(loss_of(model->forward(own_x), own_y), kBatch);
          sgd.minimize(mean);
          return mean.detach();
        },
        split_batch(strategy, x), split_batch(strategy, y));
    alone_sgd.zero_grad();
    const auto expected = loss_of(alone->forward(x), y).mean();
    expected.backward();
    alone_sgd.step();
    EXPECT_NEAR(strategy.reduce("sum", loss).item<double>(), expected.item<double>(), 1e-9) << "step " << i;
  }
}

TEST_F(RecurrentTest, TrainingEqualsLibTorchs) {
  expect_same_training({1, 1}, 1, false, 7);
  expect_same_training({2, 1}, 2, true, 5);
}

TEST_F(RecurrentTest, LogicalDevicesComputeIt) {
  LOCKSTEP_NEEDS_DEVICES(kNumDevices);
  expect_same_training({2, 2}, 1, false, 4);
}

TEST_F(RecurrentTest, ALongLayerIsOneLoopEachWay) {
  const Counters before = counters();
  expect_same_training({1, 1}, 2, true, 60);
  EXPECT_EQ(counters().fallbacks, before.fallbacks);
  const std::string hlo = last_program()->executable.optimized_program();
  EXPECT_EQ(count_of(hlo, "\x12\x05while"), 8u) << "2 layers, 2 directions, with gradients";
  EXPECT_LT(counters().compile_seconds - before.compile_seconds, 60)
      << "about two seconds, unless the machine is loaded";
}

TEST_F(RecurrentTest, GradientsCanBeDifferentiatedAgain) {
  const auto device = torch::Device(torch::kXLA, 0);
  for (const bool is_gru : {false, true}) {
    torch::manual_seed(4);
    const int64_t gates = is_gru ? 3 : 4;
    const auto x = torch::randn({3, 2, 2}, torch::kDouble), h = torch::randn({1, 2, 2}, torch::kDouble);
    const auto w = torch::randn({gates * 2, 2}, torch::kDouble), u = torch::randn({gates * 2, 2}, torch::kDouble);
    const auto penalty = [&](const torch::Device& where) {
      const auto input = x.to(where).requires_grad_(), weight = u.to(where).requires_grad_();
      const auto y =
          is_gru
              ? std::get<0>(torch::gru(input, h.to(where), {w.to(where), weight}, false, 1, 0.0, false, false, false))
              : std::get<0>(torch::lstm(input, {h.to(where), h.to(where)}, {w.to(where), weight}, false, 1, 0.0, false,
                                        false, false));
      const auto gradient = torch::autograd::grad({y.square().sum()}, {input}, {}, true, /*create_graph=*/true)[0];
      return torch::autograd::grad({gradient.square().sum()}, {weight})[0].cpu();
    };
    EXPECT_TRUE(torch::allclose(penalty(device), penalty(torch::kCPU), 1e-9, 1e-9)) << "gru " << is_gru;
  }
}

TEST_F(RecurrentTest, InferenceModeAndWrongSizes) {
  const auto device = torch::Device(torch::kXLA, 0);
  const auto x = torch::randn({3, 2, 2}), h = torch::zeros({1, 2, 2}), w = torch::randn({8, 2}),
             u = torch::randn({8, 2});
  const auto output = [&](const torch::Device& where, const torch::Tensor& first) {
    return std::get<0>(torch::lstm(x.to(where), {first.to(where), first.to(where)}, {w.to(where), u.to(where)}, false,
                                   1, 0.0, false, false, false));
  };
  {
    const c10::InferenceMode no_autograd;
    EXPECT_TRUE(torch::allclose(output(device, h).cpu(), output(torch::kCPU, h), 1e-5, 1e-6));
  }
  EXPECT_THROW(output(device, torch::zeros({1, 3, 2})), c10::Error);
  EXPECT_THROW(output(device, torch::zeros({1, 2, 3})), c10::Error);
}

/// Views of what the step computed are results like others.
TEST_F(RecurrentTest, StatesThatAStepReturnsAreReplayed) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto scope = strategy.scope();
  torch::manual_seed(2);
  auto model = module<torch::nn::LSTM>(torch::nn::LSTMOptions(3, 4).batch_first(true));
  auto step = strategy.pure([&](const torch::Tensor& x) {
    const torch::NoGradGuard no_grad;
    const auto [y, states] = model->forward(x);
    const auto [h, c] = states;
    return std::tuple{y, h, c, y.select(1, -1), h.squeeze(0), c[0]};
  });
  for (int i = 0; i < 6; ++i) {
    const auto x = torch::randn({2, 5, 3});
    const auto found = step(x);
    const auto expected = strategy.run(
        [&](const torch::Tensor& own) {
          const torch::NoGradGuard no_grad;
          const auto [y, states] = model->forward(own);
          return std::tuple{y.clone(), std::get<0>(states).clone(), std::get<1>(states).clone()};
        },
        x);
    const auto one = [&](const auto& value) { return strategy.experimental_local_results(value)[0].cpu(); };
    EXPECT_TRUE(torch::allclose(one(std::get<0>(found)), one(std::get<0>(expected)))) << i;
    EXPECT_TRUE(torch::allclose(one(std::get<1>(found)), one(std::get<1>(expected)))) << i;
    EXPECT_TRUE(torch::allclose(one(std::get<2>(found)), one(std::get<2>(expected)))) << i;
    EXPECT_TRUE(torch::allclose(one(std::get<3>(found)), one(std::get<0>(expected)).select(1, -1))) << i;
    EXPECT_TRUE(torch::allclose(one(std::get<4>(found)), one(std::get<1>(expected))[0])) << i;
    EXPECT_TRUE(torch::allclose(one(std::get<5>(found)), one(std::get<2>(expected))[0])) << i;
  }
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
}

}  // namespace
}  // namespace lockstep::xla::test
