// Trains a small convolutional network on handwritten digits under MirroredStrategy, on one replica and on all; as a
// worker of several, under MultiWorkerMirroredStrategy with all of them.
//
//   build/release/bin/digits              as many replicas as there are GPUs, or else cores
//   build/release/bin/digits 4            four replicas on the CPU
//   build/release/bin/lockstep run -n 2 -- build/release/bin/digits      two workers, one replica each
//
// Prints the accuracy on the test set, and steps and examples per second; fails below 0.97.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

constexpr int64_t kBatchPerReplica = 64;
constexpr int kSteps = 300;
constexpr int kStepsBetweenReports = 100;
constexpr double kRequiredAccuracy = 0.97;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("hidden", hidden);
    register_module("out", out);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv1->forward(x));
    x = torch::max_pool2d(torch::relu(conv2->forward(x)), 2);
    x = torch::relu(hidden->forward(x.flatten(1)));
    return torch::log_softmax(out->forward(torch::dropout(x, 0.3, is_training())), 1);
  }

  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 32, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(32, 64, 3).padding(1)};
  torch::nn::Linear hidden{64 * 4 * 4, 128};
  torch::nn::Linear out{128, 10};
};
TORCH_MODULE(Net);

// Images and labels, always in the same random order: the first are for training, the last for testing.
constexpr int64_t kDigits = 1797;
constexpr int64_t kTrainingDigits = 1437;

auto digits() {
  const auto images = ls::data::load_npy(LOCKSTEP_EXAMPLE_DATA "/digits_images.npy").view({kDigits, 1, 8, 8});
  const auto labels = ls::data::load_npy(LOCKSTEP_EXAMPLE_DATA "/digits_labels.npy");
  return ls::data::from_tensor_slices(std::tuple{images.to(torch::kFloat) / 16, labels.to(torch::kLong)})
      .shuffle(kDigits, {.seed = 1, .reshuffle_each_iteration = false});
}

struct Report {
  double accuracy = 0;
  double steps_per_second = 0;
  int64_t global_batch = 0;
};

// Whether this process prints and writes files.
bool is_chief(const ls::Strategy& strategy) { return strategy.extended().should_checkpoint(); }

Report train(const ls::Strategy& strategy) {
  torch::manual_seed(1);
  auto scope = strategy.scope();
  auto model = ls::module<Net>();
  auto adam = ls::optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(2e-3));
  const int64_t global_batch = kBatchPerReplica * strategy.num_replicas_in_sync();
  const auto training =
      digits().take(kTrainingDigits).shuffle(kTrainingDigits).repeat().batch(global_batch).take(kSteps);
  const auto testing = digits().skip(kTrainingDigits).batch(global_batch);

  const auto begin = std::chrono::steady_clock::now();
  int step = 0;
  for (const auto& batch : strategy.distribute_dataset(training)) {
    const auto losses = strategy.run(
        [&](torch::Tensor images, torch::Tensor labels) {
          const auto each = torch::nll_loss(model->forward(images), labels, {}, torch::Reduction::None);
          const auto mean = ls::average_loss(each);
          adam.minimize(mean);
          return mean.detach();
        },
        batch);
    if (++step % kStepsBetweenReports != 0) continue;
    const auto loss = strategy.reduce("sum", losses).item<double>();  // all workers call it, one of them prints
    if (is_chief(strategy)) std::cout << "  step " << step << ", loss " << loss << std::endl;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  model.eval();
  double correct = 0;
  for (const auto& batch : strategy.distribute_dataset(testing)) {  // every digit once, also of the last batch
    const auto each = strategy.run(
        [&](torch::Tensor images, torch::Tensor labels) {
          const torch::NoGradGuard no_grad;
          return model->forward(images).argmax(1).eq(labels).sum();
        },
        batch);
    correct += strategy.reduce("sum", each).item<double>();
  }
  return {correct / (kDigits - kTrainingDigits), kSteps / seconds.count(), global_batch};
}

// Trains, prints the result, and returns whether it is good enough.
bool train_and_report(const ls::Strategy& strategy) {
  const Report report = train(strategy);
  if (is_chief(strategy)) {
    std::cout << strategy.type_name() << ", " << strategy.num_replicas_in_sync() << " replica(s): accuracy "
              << report.accuracy << ", " << report.steps_per_second << " steps per second, "
              << report.steps_per_second * report.global_batch << " examples per second" << std::endl;
  }
  if (report.accuracy >= kRequiredAccuracy) return true;
  std::cerr << "the accuracy is below " << kRequiredAccuracy << '\n';
  return false;
}

bool train_on_workers() {
  const ls::MultiWorkerMirroredStrategy all;
  if (is_chief(all)) std::cout << "engine " << all.engine() << ": " << all.engine_reason() << std::endl;
  return train_and_report(all);
}

bool train_on_gpus() {
  const bool single = train_and_report(ls::MirroredStrategy({"GPU:0"}));
  return train_and_report(ls::MirroredStrategy()) && single;
}

bool train_on_cores(int replicas) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (replicas == 0) replicas = std::min(8, cores);
  ls::set_logical_devices("CPU", replicas);
  ls::set_threads_per_replica(std::max(1, cores / replicas));  // as many for the single one
  const bool single = train_and_report(ls::MirroredStrategy({"CPU:0"}));
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
  return train_and_report(ls::MirroredStrategy(devices)) && single;
}

int main(int argc, char** argv) try {
  std::cout << std::fixed;
  std::cout.precision(3);
  const int replicas = argc > 1 ? std::atoi(argv[1]) : 0;
  const bool has_gpu = !ls::list_logical_devices("GPU").empty();
  const bool good = ls::worker_place(*ls::resolve_cluster()) ? train_on_workers()
                    : has_gpu && replicas == 0               ? train_on_gpus()
                                                             : train_on_cores(replicas);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
