#pragma once

#include <optional>

#include <torch/nn/module.h>

/// Internal: layers of batch normalization, and the marks by which their calls are recognized.
namespace lockstep::nn::detail {

/// The tensors of a layer; undefined where it has none.
struct NormTensors {
  at::Tensor running_mean, running_var, weight, bias;
};

/// Nothing if the module is no BatchNorm1d, BatchNorm2d or BatchNorm3d.
std::optional<NormTensors> norm_tensors(const torch::nn::Module& module);

/// Marks the tensors of a layer: see BatchNormOverride.
void mark_norm(const torch::nn::Module& module);

/// Whether calls of the layer are recognized.
bool is_marked_norm(const NormTensors& tensors);

}  // namespace lockstep::nn::detail
