#pragma once

#include <array>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/strategy/optimizer/update/rows/row_state.h"

/// Internal: the arithmetic of FusedUpdate.
namespace lockstep::detail {

/// Parameters of one group, device and dtype that are updated by the same calls.
struct FusedBatch {
  size_t group = 0;
  c10::Device device = c10::kCPU;
  at::ScalarType dtype = at::kFloat;
  /// Whether momentum has no value yet (SGD).
  bool is_first = false;

  std::vector<at::Tensor> parameters = {};
  /// With the strides of the parameters.
  std::vector<at::Tensor> gradients = {};
  /// The tensors of the state, in the order of StateFields. Empty where the options use none.
  std::array<std::vector<at::Tensor>, StateFields::kMax> fields = {};
  /// The step numbers, this step included: floats. Empty where the optimizer has none.
  std::vector<at::Tensor> counts = {};

  /// Drops all tensors.
  void clear();
};

/// The dtype in which a batch wants its learning rate on the device; nothing if it wants it on the host.
std::optional<at::ScalarType> dtype_of_rate(UpdateRule rule, at::ScalarType parameters);

/// Whether there are functions for parameters of this dtype.
bool has_fused_functions(UpdateRule rule, at::ScalarType parameters);

/// Updates a batch. `rate` is on its device where `dtype_of_rate` says so, else it is undefined. `found_inf` is defined
/// for SGD, Adam and AdamW only.
void update_batch(UpdateRule rule, const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const at::Tensor& rate, const at::Tensor& found_inf);

}  // namespace lockstep::detail
