// Training through the public interface, on replicas and their logical devices, equals training on one CPU.

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/program.h"
#include "tests/conformance/models.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"
#include "tests/xla/training_models.h"

namespace lockstep::xla::test {
namespace {

using conformance::Mlp;

constexpr int kSteps = 4;
constexpr int64_t kTrainingBatch = 8;
/// XLA adds in another order than LibTorch: a few units in the last place of a double, and what steps make of them.
constexpr double kTolerance = 1e-9;

const auto kMomentum = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
const auto kAdamW = torch::optim::AdamWOptions(0.01);

struct Batch {
  torch::Tensor x;
  torch::Tensor y;
};

std::vector<Batch> make_images(int64_t size) {
  torch::manual_seed(11);
  std::vector<Batch> batches;
  for (int i = 0; i < kSteps; ++i) {
    batches.push_back({torch::randn({kTrainingBatch, 1, size, size}, torch::kDouble),
                       torch::randint(5, {kTrainingBatch}, torch::kLong)});
  }
  return batches;
}

std::vector<Batch> make_texts() {
  torch::manual_seed(11);
  std::vector<Batch> batches;
  for (int i = 0; i < kSteps; ++i) {
    const auto text = torch::randint(GptImpl::kTokens, {kTrainingBatch, GptImpl::kLength + 1}, torch::kLong);
    batches.push_back(
        {text.narrow(1, 0, GptImpl::kLength).contiguous(), text.narrow(1, 1, GptImpl::kLength).contiguous()});
  }
  return batches;
}

/// One loss for each example, also where an example has several labels.
torch::Tensor losses_of(const torch::Tensor& prediction, const torch::Tensor& y) {
  const auto classes = prediction.reshape({y.numel(), prediction.size(-1)});
  return torch::nll_loss(classes, y.reshape(-1), {}, torch::Reduction::None).view({y.size(0), -1}).mean(1);
}

/// How a training is spread over two logical devices.
struct Split {
  std::vector<int64_t> batch;
  std::vector<std::pair<std::string, std::vector<int64_t>>> parameters;
};

struct Trained {
  std::vector<double> losses;
  std::vector<torch::Tensor> tensors;
};

template <class Module>
std::vector<torch::Tensor> values_of(const Module& module) {
  std::vector<torch::Tensor> values;
  for (const auto& tensor : module.parameters()) values.push_back(tensor.detach().cpu());
  for (const auto& tensor : module.buffers()) values.push_back(tensor.cpu());
  return values;
}

/// On the CPU. Batch normalisation sees the part of a replica, and its statistics are averaged over replicas.
template <class M, class O, class Options>
Trained train_on_cpu(const std::vector<Batch>& batches, const Options& options, int replicas) {
  const OneDeviceStrategy strategy("CPU:0");
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<M>();
  auto optimizer = lockstep::optimizer<O>(model, options);
  Trained trained;
  const auto step = [&](const Batch& batch) {
    const auto buffers = model->buffers();
    std::vector<torch::Tensor> before;
    std::vector<torch::Tensor> sums;
    for (const auto& buffer : buffers) before.push_back(buffer.clone());
    for (const auto& buffer : buffers) sums.push_back(torch::zeros_like(buffer));
    double loss = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(before[i]);
      const auto x = batch.x.chunk(replicas)[replica];
      const auto part = average_loss(losses_of(model->forward(x), batch.y.chunk(replicas)[replica]), kTrainingBatch);
      part.backward();
      loss += part.template item<double>();
      for (size_t i = 0; i < buffers.size(); ++i) sums[i].add_(buffers[i]);
    }
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(sums[i].div(replicas));
    optimizer.step();
    optimizer.zero_grad();
    trained.losses.push_back(loss);
  };
  for (const Batch& batch : batches) strategy.run([&] { step(batch); });
  trained.tensors = values_of(*model);
  return trained;
}

template <class M>
void expect_kept_split(const TPUStrategy& strategy, const Module<M>& model, const Split& split) {
  for (int replica = 0; replica < model.num_replicas(); ++replica) {
    const auto parameters = model.replica(replica).named_parameters();
    for (const auto& [name, counts] : split.parameters) {
      const size_t part = parameters[name].nbytes() / static_cast<size_t>(strategy.num_logical_devices());
      const std::vector<size_t> parts(static_cast<size_t>(strategy.num_logical_devices()), part);
      EXPECT_EQ(strategy.bytes_per_logical_device(parameters[name]), parts) << name;
    }
  }
}

template <class M, class O, class Options>
std::vector<Trained> train_on_mesh(MeshSize size, const std::vector<Batch>& batches, const Options& options,
                                   const Split& split) {
  const TPUStrategy strategy = make_strategy(size);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<M>();
  auto optimizer = lockstep::optimizer<O>(model, options);
  const bool is_split = size.cores > 1;
  for (const auto& [name, counts] : split.parameters) {
    if (is_split) strategy.keep_split(model, name, counts);
  }
  std::vector<double> losses;
  for (const Batch& batch : batches) {
    const auto loss = strategy.run(
        [&](torch::Tensor x, torch::Tensor y) {
          if (is_split) x = strategy.split_to_logical_devices(x, split.batch);
          const auto mean = average_loss(losses_of(model->forward(x), y), kTrainingBatch);
          optimizer.minimize(mean);
          return mean.detach();
        },
        split_batch(strategy, batch.x), split_batch(strategy, batch.y));
    losses.push_back(strategy.reduce("sum", loss).template item<double>());
  }
  if (is_split) expect_kept_split(strategy, model, split);
  std::vector<Trained> copies;
  for (int i = 0; i < model.num_replicas(); ++i) copies.push_back({losses, values_of(model.replica(i))});
  return copies;
}

void expect_close(const Trained& got, const Trained& wanted) {
  for (size_t i = 0; i < wanted.losses.size(); ++i) EXPECT_NEAR(got.losses[i], wanted.losses[i], kTolerance) << i;
  ASSERT_EQ(got.tensors.size(), wanted.tensors.size());
  for (size_t i = 0; i < wanted.tensors.size(); ++i) {
    EXPECT_TRUE(torch::allclose(got.tensors[i], wanted.tensors[i], kTolerance, kTolerance))
        << "tensor " << i << " of size " << wanted.tensors[i].sizes() << " differs by "
        << (got.tensors[i] - wanted.tensors[i]).abs().max();
  }
}

class TpuTrainingTest : public ::testing::TestWithParam<MeshSize> {
 protected:
  template <class M, class O, class Options>
  static void expect_equal_training(const std::vector<Batch>& batches, const Options& options, const Split& split) {
    LOCKSTEP_NEEDS_DEVICES(GetParam().replicas * GetParam().cores);
    const Trained wanted = train_on_cpu<M, O>(batches, options, GetParam().replicas);
    const Counters before = counters();
    const auto copies = train_on_mesh<M, O>(GetParam(), batches, options, split);
    EXPECT_EQ(counters().fallbacks, before.fallbacks);
    ASSERT_EQ(static_cast<int>(copies.size()), GetParam().replicas);
    for (const Trained& copy : copies) expect_close(copy, wanted);
  }
};

const Split kMlpSplit{{2, 1, 1, 1}, {{"first.weight", {2, 1}}, {"first.bias", {2}}, {"second.weight", {1, 2}}}};
const Split kCnnSplit{{1, 1, 2, 1}, {{"out.weight", {1, 2}}}};
const Split kResNetSplit{{2, 1, 1, 1}, {{"block1.first.weight", {2, 1, 1, 1}}, {"block2.second.weight", {1, 2, 1, 1}}}};
const Split kGptSplit{
    {2, 1}, {{"tokens.weight", {1, 2}}, {"qkv.weight", {2, 1}}, {"up.weight", {2, 1}}, {"down.weight", {1, 2}}}};

TEST_P(TpuTrainingTest, MlpWithMomentum) {
  expect_equal_training<Mlp, torch::optim::SGD>(make_images(6), kMomentum, kMlpSplit);
}
TEST_P(TpuTrainingTest, MlpWithAdamW) {
  expect_equal_training<Mlp, torch::optim::AdamW>(make_images(6), kAdamW, kMlpSplit);
}
TEST_P(TpuTrainingTest, CnnWithMomentum) {
  expect_equal_training<Cnn, torch::optim::SGD>(make_images(8), kMomentum, kCnnSplit);
}

std::string mesh_name(const ::testing::TestParamInfo<MeshSize>& info) {
  return c10::str(info.param.replicas, "x", info.param.cores);
}

INSTANTIATE_TEST_SUITE_P(Meshes, TpuTrainingTest,
                         ::testing::Values(MeshSize{1, 1}, MeshSize{2, 1}, MeshSize{1, 2}, MeshSize{2, 2}), mesh_name);

// Larger models with one optimizer and on one or two meshes each: compiling them takes seconds.
class TpuResNetTest : public TpuTrainingTest {};
TEST_P(TpuResNetTest, ResNetWithMomentum) {
  expect_equal_training<ResNet, torch::optim::SGD>(make_images(8), kMomentum, kResNetSplit);
}
INSTANTIATE_TEST_SUITE_P(Meshes, TpuResNetTest, ::testing::Values(MeshSize{2, 1}, MeshSize{2, 2}), mesh_name);

class TpuCnnTest : public TpuTrainingTest {};
TEST_P(TpuCnnTest, CnnWithAdamW) { expect_equal_training<Cnn, torch::optim::AdamW>(make_images(8), kAdamW, kCnnSplit); }
INSTANTIATE_TEST_SUITE_P(Meshes, TpuCnnTest, ::testing::Values(MeshSize{2, 2}), mesh_name);

class TpuGptTest : public TpuTrainingTest {};
TEST_P(TpuGptTest, GptWithAdamW) { expect_equal_training<Gpt, torch::optim::AdamW>(make_texts(), kAdamW, kGptSplit); }
INSTANTIATE_TEST_SUITE_P(Meshes, TpuGptTest, ::testing::Values(MeshSize{1, 2}, MeshSize{2, 2}), mesh_name);

/// What a program takes as arguments on one device, for a step of AdamW on one variable.
int64_t bytes_of_adamw(int cores, bool keeps_split) {
  constexpr int64_t kRows = 64;
  const TPUStrategy strategy = make_strategy({1, cores});
  auto scope = strategy.scope();
  const Variable weight(torch::ones({kRows, kRows}, torch::kDouble));
  const auto adamw = optimizer<torch::optim::AdamW>(std::vector<Variable>{weight}, kAdamW);
  if (keeps_split) strategy.keep_split(weight, {cores, 1});
  for (int i = 0; i < 3; ++i) strategy.run([&] { adamw.minimize(weight.value().square().sum()); });
  return last_program()->executable.memory_use().arguments;
}

TEST(TpuMemoryTest, OptimizerStateIsSplitAsItsParameterIs) {
  LOCKSTEP_NEEDS_DEVICES(2);
  constexpr int64_t kThree = 3 * 64 * 64 * sizeof(double);  // the variable and two tensors of AdamW's
  constexpr int64_t kNumbers = 1024;                        // its count, its rate
  const int64_t whole = bytes_of_adamw(2, false);
  EXPECT_GE(whole, kThree);
  EXPECT_LE(whole, kThree + kNumbers);
  const int64_t half = bytes_of_adamw(2, true);
  EXPECT_GE(half, kThree / 2);
  EXPECT_LE(half, kThree / 2 + kNumbers);
}

}  // namespace
}  // namespace lockstep::xla::test
