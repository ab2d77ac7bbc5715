#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "bench/gpu_line.h"
#include "bench/models.h"

namespace lockstep::bench {

/// A training step that `bench gpu` measures.
struct GpuCase {
  /// "mlp" 784-width-width-10, "resnet18" on pictures of 224x224, or "gpt" of 6 layers in heads of 64, on 256 tokens.
  std::string model = "mlp";
  /// mlp and gpt only.
  int64_t width = 512;
  /// Examples of all replicas together.
  int64_t batch = 32;
  /// "sgd" or "adam".
  std::string optimizer = "sgd";
  /// float32, or bfloat16 by autocast.
  at::ScalarType compute = at::kFloat;
};

/// Which cases are measured; empty: all.
struct GpuCaseFilter {
  std::vector<std::string> models;
  std::vector<std::string> optimizers;
  /// "float32" and "bfloat16".
  std::vector<std::string> computes;
};

/// The cases: each model with each optimizer in each type; the MLP with width and batch 512/32, 512/256 and 2048/256,
/// ResNet-18 on 64 pictures, and GPT of width 512 on 16 sequences.
std::vector<GpuCase> gpu_cases(const GpuCaseFilter& filter);

/// The largest case of each model with SGD in float32.
std::vector<GpuCase> large_gpu_cases(const GpuCaseFilter& filter);

/// Begins a line with the name of the measurement and what the case is.
GpuLine describe(const std::string& name, const GpuCase& gpu_case);

/// A model of the other measurements, with sizes for a card.
class GpuModel : public torch::nn::Module {
 public:
  /// Makes random examples on the CPU.
  virtual ModelBatch make_batch(int64_t examples) const = 0;
  /// Returns the loss of each example.
  virtual torch::Tensor losses(const ModelBatch& batch) = 0;
};

std::shared_ptr<GpuModel> make_gpu_model(const GpuCase& gpu_case);

/// Gives a model the parameters and buffers of another one.
void copy_state(torch::nn::Module& to, const torch::nn::Module& from);

/// Returns `count` examples from `begin` on, on a device.
ModelBatch part_of(const ModelBatch& batch, int64_t begin, int64_t count, c10::Device device);

}  // namespace lockstep::bench
