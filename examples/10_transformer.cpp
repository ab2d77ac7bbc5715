// Trains a small Transformer that continues a text, with the work of its one replica split over four devices: a mesh of
// two by two, one axis for the sequences of a batch, the other for the features of the layers. XLA compiles the step
// and partitions it; the weights of the large layers, and their optimizer state, are sharded over the devices.
//
//   make plugin                                     once: XLA's plugin for CPUs
//   build/release/bin/transformer                   four devices that XLA makes of this machine's cores
//   build/release/bin/transformer --steps 50
//   LOCKSTEP_PJRT_PLUGIN=/path/to/libtpu.so build/release/bin/transformer        four cores of a TPU
//
// Prints the loss, which must fall, what the model writes, and what each device holds.

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

constexpr int64_t kLength = 32;  // characters that the model sees
constexpr int64_t kWidth = 64;   // features of a character
constexpr int64_t kHeads = 4;    // of the attention
constexpr int64_t kLayers = 2;
constexpr int64_t kSequences = 32;  // in a batch
constexpr int kStepsBetweenReports = 50;

// ---- A synthetic text

// All sums of two digits, in a regular order.
std::string make_text() {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    const int a = i * 7 % 10;
    const int b = (i / 10 + i * 3) % 10;
    text += std::to_string(a) + "+" + std::to_string(b) + "=" + std::to_string(a + b) + ";";
  }
  return text;
}

const std::string kCharacters = "0123456789+=;";

torch::Tensor encode(const std::string& text) {
  std::vector<int64_t> codes;
  for (const char c : text) codes.push_back(static_cast<int64_t>(kCharacters.find(c)));
  return torch::tensor(codes, torch::kLong);
}

// ---- The model

// The sharding of activations: every tensor of sequences by characters by features has 2 x 1 x 2 tiles.
using Layout = std::function<torch::Tensor(const torch::Tensor&)>;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm1", norm1);
    register_module("attention", attention);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }

  torch::Tensor forward(torch::Tensor x, const Layout& split) {
    x = split(x + projection->forward(attend(split(attention->forward(norm1->forward(x))))));
    return split(x + down->forward(split(torch::gelu(up->forward(norm2->forward(x))))));
  }

  // Each character attends to those before it.
  static torch::Tensor attend(const torch::Tensor& features) {
    const int64_t length = features.size(1);
    const auto parts = features.view({-1, length, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto place = torch::arange(length, features.options());
    auto scores = parts[0].matmul(parts[1].transpose(2, 3)) / std::sqrt(static_cast<double>(kWidth / kHeads));
    scores = scores.masked_fill(place.unsqueeze(0) > place.unsqueeze(1), -1e9);
    return torch::softmax(scores, 3).matmul(parts[2]).transpose(1, 2).reshape({-1, length, kWidth});
  }

  torch::nn::LayerNorm norm1{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear attention{kWidth, 3 * kWidth};
  torch::nn::Linear projection{kWidth, kWidth};
  torch::nn::LayerNorm norm2{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear up{kWidth, 4 * kWidth};
  torch::nn::Linear down{4 * kWidth, kWidth};
};
TORCH_MODULE(Block);

struct TransformerImpl : torch::nn::Module {
  TransformerImpl() {
    register_module("characters", characters);
    register_module("places", places);
    for (int64_t i = 0; i < kLayers; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    register_module("out", out);
  }

  // Logits of the next character, after each one of `text`.
  torch::Tensor forward(const torch::Tensor& text, const Layout& split) {
    auto x = split(characters->forward(text) + places->forward(torch::arange(text.size(1), text.options())));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x, split);
    return out->forward(x);
  }

  torch::nn::Embedding characters{static_cast<int64_t>(kCharacters.size()), kWidth};
  torch::nn::Embedding places{kLength, kWidth};
  torch::nn::ModuleList blocks;
  torch::nn::Linear out{kWidth, static_cast<int64_t>(kCharacters.size())};
};
TORCH_MODULE(Transformer);

// ---- The training

// Weights of the large layers have 2 x 2 tiles: outputs along one axis of the mesh, inputs along the other.
void keep_weights_split(const ls::TPUStrategy& strategy, const ls::Module<Transformer>& model) {
  for (int64_t i = 0; i < kLayers; ++i) {
    for (const char* layer : {"attention", "projection", "up", "down"}) {
      strategy.keep_split(model, "blocks." + std::to_string(i) + "." + layer + ".weight", {2, 2});
    }
  }
}

size_t bytes_of_parameters(const ls::TPUStrategy& strategy, const ls::Module<Transformer>& model, size_t device) {
  size_t bytes = 0;
  for (const auto& parameter : model->parameters()) bytes += strategy.bytes_per_logical_device(parameter)[device];
  return bytes;
}

size_t bytes_of_parameters(const ls::Module<Transformer>& model) {
  size_t bytes = 0;
  for (const auto& parameter : model->parameters()) bytes += parameter.nbytes();
  return bytes;
}

// Draws a batch: parts of the text, and the character that follows each of their characters.
std::pair<torch::Tensor, torch::Tensor> draw_batch(const torch::Tensor& text) {
  const auto begins = torch::randint(text.size(0) - kLength, {kSequences, 1}, torch::kLong);
  const auto places = begins + torch::arange(kLength);
  return {text.index({places}), text.index({places + 1})};
}

// Continues the beginning of the text with the model, always with the most likely character.
std::string continued(const ls::TPUStrategy& strategy, const ls::Module<Transformer>& model, const std::string& text) {
  const Layout whole = [](const torch::Tensor& x) { return x; };
  auto step = strategy.pure([&](const torch::Tensor& seen) {
    const torch::NoGradGuard no_grad;
    return model->forward(seen, whole).argmax(2);
  });
  std::string written = text.substr(0, kLength);
  for (int i = 0; i < kLength; ++i) {
    const auto seen = encode(written.substr(written.size() - kLength)).unsqueeze(0);
    const auto next = strategy.local_results(step(seen))[0];
    written += kCharacters[static_cast<size_t>(next[0][kLength - 1].item<int64_t>())];
  }
  return written;
}

struct Report {
  double first_loss = 0;
  double last_loss = 0;
};

Report train(const ls::TPUStrategy& strategy, int steps) {
  torch::manual_seed(1);
  auto scope = strategy.scope();
  auto model = ls::module<Transformer>();
  auto adam = ls::optimizer<torch::optim::AdamW>(model, torch::optim::AdamWOptions(3e-3));
  keep_weights_split(strategy, model);
  std::cout << "parameters: " << bytes_of_parameters(model) << " bytes; on each logical device "
            << bytes_of_parameters(strategy, model, 0) << '\n';

  const Layout split = [&](const torch::Tensor& x) { return strategy.split_to_logical_devices(x, {2, 1, 2}); };
  auto step = strategy.pure([&](const torch::Tensor& seen, const torch::Tensor& next) {
    const auto logits = model->forward(seen, split);
    const auto loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), next.flatten());
    adam.minimize(loss, {.clip_norm = 1.0});
    return loss.detach();
  });

  const std::string text = make_text();
  const auto codes = encode(text);
  Report report;
  for (int i = 1; i <= steps; ++i) {
    const bool is_replayed = step.is_replayed();
    const auto [seen, next] = draw_batch(codes);
    const auto loss = step(seen, next);
    if (i > 3 && i % kStepsBetweenReports != 0 && i != steps) continue;
    report.last_loss = strategy.reduce("mean", loss).item<double>();
    if (i == 1) report.first_loss = report.last_loss;
    std::cout << "  step " << i << ", loss " << report.last_loss << (is_replayed ? ", replayed" : ", traced")
              << std::endl;
  }
  std::cout << "it writes: " << continued(strategy, model, text) << '\n';
  return report;
}

int steps_of(int argc, char** argv) {
  if (argc == 1) return 200;
  if (argc == 3 && std::string(argv[1]) == "--steps" && std::atoi(argv[2]) > 0) return std::atoi(argv[2]);
  throw std::invalid_argument("transformer [--steps N]");
}

int main(int argc, char** argv) try {
  const int steps = steps_of(argc, argv);
  if (!ls::has_tpu_plugin()) {
    std::cout << "there is no plugin of XLA here: `make plugin` fetches the one for CPUs, LOCKSTEP_PJRT_PLUGIN names "
                 "any other\n";
    return EXIT_SUCCESS;
  }
  const auto topology = ls::initialize_tpu_system(nullptr, {.num_cpu_devices = 4});
  const auto assignment = ls::tpu::DeviceAssignment::build(topology, {.computation_shape = {2, 1, 1, 2}});
  const ls::TPUStrategy strategy(nullptr, assignment);
  const ls::TPUSystem system = ls::tpu_system();
  std::cout << system.platform << " (" << system.devices.size()
            << " devices), replicas: " << strategy.num_replicas_in_sync()
            << ", logical devices of each: " << strategy.num_logical_devices() << '\n';

  const Report report = train(strategy, steps);
  const ls::xla::Counters counters = ls::xla::counters();
  std::cout << "programs: " << counters.compiles << ", compiled in " << counters.compile_seconds
            << " s; steps replayed: " << counters.replays << "; functions that ran on the CPU: " << counters.fallbacks
            << '\n';
  if (report.last_loss < 0.7 * report.first_loss) return EXIT_SUCCESS;
  std::cerr << "the loss did not fall\n";
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
