#include "lockstep/nn/marked_norms.h"

#include <torch/nn/modules/batchnorm.h>

#include "lockstep/nn/synchronised_batch_norm.h"

namespace lockstep::nn::detail {
namespace {

using lockstep::detail::BatchNormOverride;

template <class Impl>
std::optional<NormTensors> tensors_if(const torch::nn::Module& module) {
  const auto* const norm = dynamic_cast<const Impl*>(&module);
  if (norm == nullptr) return std::nullopt;
  return NormTensors{norm->running_mean, norm->running_var, norm->weight, norm->bias};
}

}  // namespace

std::optional<NormTensors> norm_tensors(const torch::nn::Module& module) {
  if (auto tensors = tensors_if<torch::nn::BatchNorm1dImpl>(module)) return tensors;
  if (auto tensors = tensors_if<torch::nn::BatchNorm2dImpl>(module)) return tensors;
  return tensors_if<torch::nn::BatchNorm3dImpl>(module);
}

void mark_norm(const torch::nn::Module& module) {
  const auto tensors = norm_tensors(module);
  if (!tensors) return;
  use_synchronised_batch_norm();
  for (const at::Tensor* tensor : {&tensors->running_mean, &tensors->running_var, &tensors->weight, &tensors->bias}) {
    BatchNormOverride::mark(*tensor);
  }
}

bool is_marked_norm(const NormTensors& tensors) {
  return BatchNormOverride::is_marked(tensors.running_mean) || BatchNormOverride::is_marked(tensors.weight);
}

}  // namespace lockstep::nn::detail
