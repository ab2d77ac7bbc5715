// Trains a small GPT on the characters of this repository's documentation with a Trainer, on all replicas; one replica
// trains the first epochs, too, for comparison.
//
//   build/release/bin/char_gpt               as many replicas as there are cores; about a minute on two
//   build/release/bin/char_gpt 2 3           two replicas, three epochs
//
// Prints the losses of both trainings, which are equal but for rounding, and what the model writes. Fails if the loss
// of text that was held back is not below 1.9 nats for each character; 2.7 where the number of epochs is given.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "examples/curves.h"
#include "lockstep/lockstep.h"

namespace ls = lockstep;
namespace nn = torch::nn;

constexpr int64_t kCharacters = 128;  // ASCII
constexpr int64_t kLength = 64;       // characters that the model sees
constexpr int64_t kWidth = 64;        // features of a character
constexpr int64_t kHeads = 4;         // of the attention
constexpr int64_t kLayers = 2;
constexpr int64_t kGlobalBatch = 32;  // sequences
constexpr int64_t kEpochs = 6;
constexpr int64_t kStepsPerEpoch = 64;
constexpr int64_t kComparedEpochs = 2;
constexpr double kAllowedDifference = 1e-3;

// ---- The model

struct BlockImpl : nn::Module {
  BlockImpl() {
    register_module("norm1", norm1);
    register_module("attention", attention);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = x + projection->forward(attend(attention->forward(norm1->forward(x))));
    return y + down->forward(torch::gelu(up->forward(norm2->forward(y))));
  }

  // Each character attends to those before it.
  static torch::Tensor attend(const torch::Tensor& features) {
    const int64_t rows = features.size(0), length = features.size(1);
    const auto parts = features.view({rows, length, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto later = torch::ones({length, length}, features.options().dtype(torch::kBool)).triu(1);
    auto scores = parts[0].matmul(parts[1].transpose(2, 3)) / std::sqrt(static_cast<double>(kWidth / kHeads));
    scores = scores.masked_fill(later, -1e9);
    return torch::softmax(scores, 3).matmul(parts[2]).transpose(1, 2).reshape({rows, length, kWidth});
  }

  nn::LayerNorm norm1{nn::LayerNormOptions({kWidth})};
  nn::Linear attention{kWidth, 3 * kWidth};
  nn::Linear projection{kWidth, kWidth};
  nn::LayerNorm norm2{nn::LayerNormOptions({kWidth})};
  nn::Linear up{kWidth, 4 * kWidth};
  nn::Linear down{4 * kWidth, kWidth};
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  GptImpl() {
    register_module("characters", characters);
    register_module("places", places);
    register_module("neighbours", neighbours);
    for (int64_t i = 0; i < kLayers; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("out", out);
    const torch::NoGradGuard no_grad;
    characters->weight.mul_(0.3);
    places->weight.mul_(0.1);
  }

  // Logits [rows, length, characters] of the next character after each one of `text`.
  torch::Tensor forward(const torch::Tensor& text) {
    const auto each = characters->forward(text);
    const auto before = torch::constant_pad_nd(each.transpose(1, 2), {2, 0});  // nobody sees a later character
    auto x = each + neighbours->forward(before).transpose(1, 2) +
             places->forward(torch::arange(text.size(1), text.options()));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return out->forward(norm->forward(x));
  }

  nn::Embedding characters{kCharacters, kWidth};
  nn::Embedding places{kLength, kWidth};
  nn::Conv1d neighbours{nn::Conv1dOptions(kWidth, kWidth, 3)};
  nn::ModuleList blocks;
  nn::LayerNorm norm{nn::LayerNormOptions({kWidth})};
  nn::Linear out{kWidth, kCharacters};
};
TORCH_MODULE(Gpt);

// ---- The text

std::string read_documentation() {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(LOCKSTEP_EXAMPLE_TEXT)) {
    if (file.path().extension() == ".md") files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  std::stringstream text;
  for (const auto& file : files) text << std::ifstream(file).rdbuf();
  return text.str();
}

torch::Tensor encode(const std::string& text) {
  std::vector<int64_t> codes;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < kCharacters) codes.push_back(c);
  }
  return torch::tensor(codes, torch::kLong);
}

struct Sequences {
  torch::Tensor seen, next;
  auto dataset() const { return ls::data::from_tensor_slices(std::tuple{seen, next}); }
};

// Sequences of the text and the characters that follow: every tenth is held back.
std::pair<Sequences, Sequences> split(const torch::Tensor& text) {
  const int64_t count = (text.size(0) - 1) / kLength;
  const auto seen = text.slice(0, 0, count * kLength).view({count, kLength});
  const auto next = text.slice(0, 1, count * kLength + 1).view({count, kLength});
  const auto held_back = torch::arange(count).remainder(10).eq(9);
  const auto part = [&](const torch::Tensor& which) {
    return Sequences{seen.index({which}).clone(), next.index({which}).clone()};
  };
  return {part(held_back.logical_not()), part(held_back)};
}

// ---- The training

// Continues a text with characters that are drawn by their probabilities.
std::string continued(const ls::Module<Gpt>& model, std::string text, int64_t length) {
  const torch::NoGradGuard no_grad;
  while (static_cast<int64_t>(text.size()) < length) {
    const auto seen = encode(text.size() > kLength ? text.substr(text.size() - kLength) : text).unsqueeze(0);
    const auto logits = model->forward(seen)[0][-1];
    text += static_cast<char>(torch::multinomial(torch::softmax(logits / 0.7, 0), 1).item<int64_t>());
  }
  return text;
}

struct Result {
  ls::History history;
  ls::Logs held_back = {};
};

torch::Tensor loss_of_each_character(const torch::Tensor& logits, const torch::Tensor& next) {
  return torch::cross_entropy_loss(logits.transpose(1, 2), next, {}, torch::Reduction::None);
}

Result train(const ls::Strategy& strategy, const torch::Tensor& text, int64_t epochs, int64_t epochs_of_schedule) {
  torch::manual_seed(1);
  const auto [training, testing] = split(text);
  auto scope = strategy.scope();
  auto model = ls::module<Gpt>();
  auto adam = ls::optimizer<torch::optim::AdamW>(model, torch::optim::AdamWOptions().weight_decay(0.01));
  const auto cosine = ls::schedules::cosine(4e-3, epochs_of_schedule * kStepsPerEpoch, 2e-4);
  ls::Trainer trainer(strategy, model, adam, loss_of_each_character,
                      {.metrics = {ls::metrics::perplexity()},
                       .schedules = {ls::schedules::warm_up(20, cosine, {.start_factor = 0.05})},
                       .clip_norm = 1.0});
  const auto batches = training.dataset().shuffle(training.seen.size(0)).batch(kGlobalBatch);
  Result result{trainer.fit(batches, {.epochs = epochs, .steps_per_epoch = kStepsPerEpoch})};
  if (strategy.num_replicas_in_sync() == 1) return result;
  result.held_back = trainer.evaluate(testing.dataset().batch(kGlobalBatch));
  std::cout << continued(model, "A strategy ", 300) << '\n';
  return result;
}

int main(int argc, char** argv) try {
  std::cout << std::fixed;
  const int replicas = argc > 1 ? std::atoi(argv[1]) : std::clamp(ls::num_hardware_threads(), 2, 8);
  const int64_t epochs = argc > 2 ? std::atoi(argv[2]) : kEpochs;
  const double required = argc > 2 ? 2.7 : 1.9;
  const auto text = encode(read_documentation());
  const Result all = train(replicas_on_cpus(replicas, replicas), text, epochs, epochs);
  const Result one = train(replicas_on_cpus(1, replicas), text, std::min(epochs, kComparedEpochs), epochs);
  const double difference = compare_curves(one.history, all.history, replicas);
  std::cout << "text that was held back: " << ls::to_string(all.held_back) << std::endl;
  if (difference <= kAllowedDifference && all.held_back.at("loss") < required) return EXIT_SUCCESS;
  std::cerr << "the losses differ, or are not below " << required << '\n';
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
