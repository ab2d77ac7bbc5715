#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

/// The networks that `bench xla` trains.
namespace lockstep::bench {

struct NetworkOptions {
  /// "mlp" 784-width-width-10; "cnn" on 3x32x32 images, two convolutions of width and 2 x width channels, batch norm
  /// and pooling; "gpt", layers of causal attention in heads of 64 and an MLP, 4,096 words; "tiny", an MLP 8-8-8-10.
  std::string model = "mlp";
  /// Examples of all replicas together.
  int64_t batch = 32;
  int64_t width = 512;
  /// gpt only.
  int64_t layers = 2;
  int64_t tokens = 64;
};

/// Sizes of each model that two cores compute in a fraction of a second.
NetworkOptions default_network(const std::string& model);

/// The same operations with minimal sizes, except for the batch.
NetworkOptions smallest_network(NetworkOptions options);

struct XlaBatch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

class Network : public torch::nn::Module {
 public:
  /// Returns the loss of each example.
  virtual torch::Tensor losses(const XlaBatch& batch) = 0;

  /// Parameters that logical devices divide among them, and along which dimension.
  virtual std::vector<std::pair<std::string, int64_t>> splits() const = 0;
};

std::shared_ptr<Network> make_network(const NetworkOptions& options);

/// Random examples for one replica.
XlaBatch make_examples(const NetworkOptions& options, int64_t examples);

}  // namespace lockstep::bench
