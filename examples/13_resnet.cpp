// Trains a small residual network with synchronised batch normalization on generated pictures with a Trainer, on one
// replica and on all.
//
//   build/release/bin/resnet              as many replicas as there are cores
//   build/release/bin/resnet 4            four replicas on the CPU
//
// Prints the accuracy on other pictures, and the losses of both trainings. They are equal but for rounding, because
// batches are normalized by the statistics of all replicas. Fails below an accuracy of 0.97.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include <torch/torch.h>

#include "examples/curves.h"
#include "lockstep/lockstep.h"

namespace ls = lockstep;
namespace nn = torch::nn;

constexpr int64_t kClasses = 8;
constexpr int64_t kSize = 16;  // rows and columns of a picture
constexpr int64_t kTrainingPictures = 1200;
constexpr int64_t kTestingPictures = 500;
constexpr int64_t kGlobalBatch = 50;
constexpr int64_t kEpochs = 5;
constexpr double kRequiredAccuracy = 0.97;
constexpr double kAllowedDifference = 0.02;

nn::Conv2d conv(int64_t in, int64_t out, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

struct ResidualImpl : nn::Module {
  ResidualImpl(int64_t in, int64_t out, int64_t stride)
      : body(conv(in, out, stride), nn::BatchNorm2d(out), nn::ReLU(), conv(out, out, 1), nn::BatchNorm2d(out)) {
    register_module("body", body);
    if (in != out) {
      direct =
          nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)), nn::BatchNorm2d(out));
      register_module("direct", direct);
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body->forward(x) + (direct ? direct->forward(x) : x));
  }

  nn::Sequential body;
  nn::Sequential direct{nullptr};
};
TORCH_MODULE(Residual);

struct ResNetImpl : nn::Module {
  ResNetImpl() { register_module("layers", layers); }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }

  nn::Sequential layers{conv(1, 16, 1),           nn::BatchNorm2d(16), nn::ReLU(),
                        Residual(16, 16, 1),      Residual(16, 32, 2), Residual(32, 64, 2),
                        nn::AdaptiveAvgPool2d(1), nn::Flatten(),       nn::Linear(64, kClasses)};
};
TORCH_MODULE(ResNet);

// Waves in one of four directions and of one of two lengths, shifted at random, in noise that is stronger than they
// are.
auto pictures(int64_t count) {
  const auto labels = torch::randint(kClasses, {count}, torch::kLong);
  const auto angle = (labels.remainder(4).to(torch::kFloat) * (M_PI / 4)).view({count, 1, 1, 1});
  const auto speed = torch::where(labels.lt(4), torch::tensor(0.8F), torch::tensor(1.6F)).view({count, 1, 1, 1});
  const auto place = torch::arange(kSize, torch::kFloat);
  const auto along = place.view({1, 1, kSize, 1}) * angle.sin() + place.view({1, 1, 1, kSize}) * angle.cos();
  const auto waves = torch::sin(along * speed + torch::rand({count, 1, 1, 1}) * (2 * M_PI));
  return ls::data::from_tensor_slices(std::tuple{waves + 1.5 * torch::randn({count, 1, kSize, kSize}), labels});
}

struct Result {
  ls::History history;
  double accuracy = 0;
};

Result train(const ls::Strategy& strategy) {
  torch::manual_seed(1);
  const auto training = pictures(kTrainingPictures);
  const auto testing = pictures(kTestingPictures);
  auto scope = strategy.scope();
  auto model = ls::module<ResNet>();
  ls::nn::convert_sync_batch_norm(model);
  auto sgd = ls::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
  const int64_t steps = kEpochs * (kTrainingPictures / kGlobalBatch);
  ls::Trainer trainer(strategy, model, sgd, ls::losses::cross_entropy(),
                      {.metrics = {ls::metrics::sparse_categorical_accuracy("accuracy")},
                       .schedules = {ls::schedules::one_cycle(0.1, steps)}});

  const auto begin = std::chrono::steady_clock::now();
  Result result{
      trainer.fit(training.shuffle(kTrainingPictures).batch(kGlobalBatch), {.epochs = kEpochs, .verbose = false})};
  result.accuracy = trainer.evaluate(testing.batch(kGlobalBatch)).at("accuracy");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << strategy.num_replicas_in_sync() << " replica(s): accuracy " << result.accuracy << ", " << seconds.count()
            << " s" << std::endl;
  return result;
}

int main(int argc, char** argv) try {
  std::cout << std::fixed << std::setprecision(4);
  const int replicas = argc > 1 ? std::atoi(argv[1]) : std::clamp(ls::num_hardware_threads(), 2, 8);
  const Result one = train(replicas_on_cpus(1, replicas));
  const Result all = train(replicas_on_cpus(replicas, replicas));
  const double difference = compare_curves(one.history, all.history, replicas);
  if (difference <= kAllowedDifference && std::min(one.accuracy, all.accuracy) >= kRequiredAccuracy)
    return EXIT_SUCCESS;
  std::cerr << "the losses differ, or the accuracy is below " << kRequiredAccuracy << '\n';
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
