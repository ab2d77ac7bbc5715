// Trains a small convolutional network on handwritten digits under MirroredStrategy, on one replica and on all.
//
//   build/release/bin/digits              as many replicas as there are GPUs, or else cores
//   build/release/bin/digits 4            four replicas on the CPU
//
// Prints the accuracy on digits that were held back, and steps and examples per second; fails below 0.97.

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

constexpr int64_t kBatchPerReplica = 64;
constexpr int kSteps = 300;
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

// Reads a file of bytes that NumPy wrote: a header whose length stands at byte 8, then the elements.
torch::Tensor read_npy(const std::string& path, std::vector<int64_t> shape) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, "cannot open ", path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t start = 10 + static_cast<unsigned char>(bytes.at(8)) + 256 * static_cast<unsigned char>(bytes.at(9));
  torch::Tensor result = torch::empty(shape, torch::kByte);
  TORCH_CHECK(bytes.size() == start + result.numel(), path, " has ", bytes.size(), " bytes, not ",
              start + result.numel());
  std::copy(bytes.begin() + start, bytes.end(), result.data_ptr<uint8_t>());
  return result;
}

struct Digits {
  torch::Tensor images = read_npy(LOCKSTEP_EXAMPLE_DATA "/digits_images.npy", {1797, 1, 8, 8}).to(torch::kFloat) / 16;
  torch::Tensor labels = read_npy(LOCKSTEP_EXAMPLE_DATA "/digits_labels.npy", {1797}).to(torch::kLong);
};

// Gives every replica its part of a batch, on its device.
ls::PerReplica<torch::Tensor> split(const ls::Strategy& strategy, const torch::Tensor& batch) {
  const auto parts = batch.tensor_split(strategy.num_replicas_in_sync());
  std::vector<torch::Tensor> placed;
  for (size_t i = 0; i < parts.size(); ++i) {
    placed.push_back(parts[i].to(ls::find_logical_device(strategy.extended().worker_devices()[i]).torch_device));
  }
  return ls::PerReplica<torch::Tensor>(placed);
}

struct Report {
  double accuracy = 0;
  double steps_per_second = 0;
  int64_t global_batch = 0;
};

Report train(const ls::Strategy& strategy, const Digits& data) {
  torch::manual_seed(1);
  auto scope = strategy.scope();
  auto model = ls::module<Net>();
  auto adam = ls::optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(2e-3));
  const int64_t global_batch = kBatchPerReplica * strategy.num_replicas_in_sync();
  const auto order = torch::randperm(data.labels.size(0));
  const auto train_ids = order.slice(0, 0, 1437);
  const auto test_ids = order.slice(0, 1437);

  int64_t steps = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (steps < kSteps) {
    for (const auto& ids : train_ids.index({torch::randperm(train_ids.size(0))}).split(global_batch)) {
      const auto x = split(strategy, data.images.index({ids}));
      const auto y = split(strategy, data.labels.index({ids}));
      strategy.run(
          [&](torch::Tensor images, torch::Tensor labels) {
            const auto each = torch::nll_loss(model->forward(images), labels, {}, torch::Reduction::None);
            adam.minimize(ls::average_loss(each, ids.size(0)));
          },
          x, y);
      ++steps;
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  model.eval();
  const auto correct = strategy.run(
      [&](torch::Tensor images, torch::Tensor labels) {
        const torch::NoGradGuard no_grad;
        return model->forward(images).argmax(1).eq(labels).sum();
      },
      split(strategy, data.images.index({test_ids})), split(strategy, data.labels.index({test_ids})));
  return {strategy.reduce("sum", correct).item<double>() / test_ids.size(0), steps / seconds.count(), global_batch};
}

void print(const char* what, const ls::Strategy& strategy, const Report& report) {
  std::cout << what << strategy.num_replicas_in_sync() << " replica(s): accuracy " << report.accuracy << ", "
            << report.steps_per_second << " steps per second, " << report.steps_per_second * report.global_batch
            << " examples per second\n";
}

int main(int argc, char** argv) try {
  std::cout << std::fixed;
  std::cout.precision(3);
  const bool has_gpu = !ls::list_logical_devices("GPU").empty();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int replicas = argc > 1 ? std::atoi(argv[1]) : std::min(8, cores);
  if (argc > 1 || !has_gpu) ls::set_logical_devices("CPU", replicas);
  if (!has_gpu || argc > 1) ls::set_threads_per_replica(std::max(1, cores / replicas));  // as many for the single one

  const Digits data;
  const std::string kind = has_gpu && argc == 1 ? "GPU:" : "CPU:";
  const ls::MirroredStrategy one({kind + "0"});
  const ls::MirroredStrategy all(argc > 1 || !has_gpu ? [&] {
    std::vector<std::string> names;
    for (int i = 0; i < replicas; ++i) names.push_back("CPU:" + std::to_string(i));
    return names;
  }() : std::vector<std::string>{});
  const Report single = train(one, data);
  print("MirroredStrategy, ", one, single);
  const Report mirrored = train(all, data);
  print("MirroredStrategy, ", all, mirrored);
  if (std::min(single.accuracy, mirrored.accuracy) >= kRequiredAccuracy) return EXIT_SUCCESS;
  std::cerr << "the accuracy is below " << kRequiredAccuracy << '\n';
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
