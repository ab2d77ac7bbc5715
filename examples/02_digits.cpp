// Trains a convolutional network on handwritten digits with a Trainer, on one replica and on all; as a worker of
// several, on all replicas of all workers.
//
//   build/release/bin/digits              as many replicas as there are GPUs, or else cores
//   build/release/bin/digits 4            four replicas on the CPU
//   build/release/bin/digits 2 7          two replicas, seed 7
//   build/release/bin/lockstep run -n 2 -- build/release/bin/digits      two workers, one replica each
//
// Prints the accuracy on digits that were held back, and the losses of both trainings, which are equal but for
// rounding: the global batch is the same. Fails below an accuracy of 0.99.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include <torch/torch.h>

#include "examples/curves.h"
#include "lockstep/lockstep.h"

namespace ls = lockstep;

constexpr int64_t kGlobalBatch = 48;
constexpr int64_t kEpochs = 20;
constexpr double kRequiredAccuracy = 0.99;
constexpr double kAllowedDifference = 0.05;

struct NetImpl : torch::nn::Module {
  NetImpl() { register_module("layers", layers); }

  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }

  static torch::nn::Conv2d conv(int64_t in, int64_t out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1));
  }
  torch::nn::Sequential layers{conv(1, 32),       torch::nn::ReLU(),         conv(32, 48),
                               torch::nn::ReLU(), torch::nn::MaxPool2d(2),   conv(48, 64),
                               torch::nn::ReLU(), torch::nn::Flatten(),      torch::nn::Linear(64 * 4 * 4, 128),
                               torch::nn::ReLU(), torch::nn::Linear(128, 10)};
};
TORCH_MODULE(Net);

// Images and labels, always in the same random order: the first are for training, the last for testing.
constexpr int64_t kDigits = 1797;
constexpr int64_t kTrainingDigits = 1437;

auto digits() {
  const auto images = ls::data::load_npy(LOCKSTEP_EXAMPLE_DATA "/digits_images.npy").view({kDigits, 1, 8, 8});
  const auto labels = ls::data::load_npy(LOCKSTEP_EXAMPLE_DATA "/digits_labels.npy");
  return ls::data::from_tensor_slices(std::tuple{images.to(torch::kFloat) / 16, labels.to(torch::kLong)})
      .shuffle(kDigits, {.seed = 1, .reshuffle_each_iteration = false})
      .with_options({.auto_shard_policy = ls::data::AutoShardPolicy::Data});  // workers use their parts of each batch
}

// Turns, scales and moves each image of a batch a little.
std::tuple<torch::Tensor, torch::Tensor> vary(const torch::Tensor& images, const torch::Tensor& labels) {
  const auto rows = images.size(0);
  const auto draw = [&](double range) { return (torch::rand({rows}) * 2 - 1) * range; };
  const auto angle = draw(0.2), scale = 1 + draw(0.1);
  const auto turned = torch::stack({angle.cos() * scale, -angle.sin(), draw(0.2),  //
                                    angle.sin(), angle.cos() * scale, draw(0.2)},
                                   1);
  const auto grid = torch::affine_grid_generator(turned.view({rows, 2, 3}), images.sizes(), false);
  return {torch::grid_sampler(images, grid, 0, 0, false), labels};
}

struct Result {
  ls::History history;
  double accuracy = 0;
};

Result train(const ls::Strategy& strategy, uint64_t seed) {
  torch::manual_seed(seed);
  auto scope = strategy.scope();
  auto model = ls::module<Net>();
  auto adam = ls::optimizer<torch::optim::AdamW>(model, torch::optim::AdamWOptions().weight_decay(1e-2));
  const int64_t steps = kEpochs * ((kTrainingDigits + kGlobalBatch - 1) / kGlobalBatch);
  ls::Trainer trainer(strategy, model, adam, ls::losses::cross_entropy({.label_smoothing = 0.05}),
                      {.metrics = {ls::metrics::sparse_categorical_accuracy("accuracy")},
                       .schedules = {ls::schedules::one_cycle(4e-3, steps)}});

  const auto begin = std::chrono::steady_clock::now();
  const auto training = digits().take(kTrainingDigits).shuffle(kTrainingDigits).batch(kGlobalBatch).map(vary);
  Result result{trainer.fit(training, {.epochs = kEpochs, .verbose = false})};
  result.accuracy = trainer.evaluate(digits().skip(kTrainingDigits).batch(kGlobalBatch)).at("accuracy");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (trainer.is_chief()) {
    std::cout << strategy.type_name() << ", " << strategy.num_replicas_in_sync() << " replica(s): accuracy "
              << result.accuracy << ", " << seconds.count() << " s" << std::endl;
  }
  return result;
}

bool is_good(const Result& result) {
  if (result.accuracy >= kRequiredAccuracy) return true;
  std::cerr << "the accuracy is below " << kRequiredAccuracy << '\n';
  return false;
}

bool train_on_workers(uint64_t seed) {
  const ls::MultiWorkerMirroredStrategy all;
  if (all.extended().should_checkpoint()) {
    std::cout << "engine " << all.engine() << ": " << all.engine_reason() << std::endl;
  }
  return is_good(train(all, seed));
}

bool train_on_one_and_all(const ls::Strategy& one, const ls::Strategy& all, uint64_t seed) {
  const Result first = train(one, seed);
  const Result second = train(all, seed);
  const double difference = compare_curves(first.history, second.history, all.num_replicas_in_sync());
  if (difference > kAllowedDifference) std::cerr << "the losses differ\n";
  return is_good(first) && is_good(second) && difference <= kAllowedDifference;
}

int main(int argc, char** argv) try {
  std::cout << std::fixed;
  std::cout.precision(4);
  int replicas = argc > 1 ? std::atoi(argv[1]) : 0;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  bool good = false;
  if (ls::worker_place(*ls::resolve_cluster())) {
    good = train_on_workers(seed);
  } else if (replicas == 0 && !ls::list_logical_devices("GPU").empty()) {
    good = train_on_one_and_all(ls::MirroredStrategy({"GPU:0"}), ls::MirroredStrategy(), seed);
  } else {
    if (replicas <= 0) replicas = std::min(8, ls::num_hardware_threads());
    good = train_on_one_and_all(replicas_on_cpus(1, replicas), replicas_on_cpus(replicas, replicas), seed);
  }
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
