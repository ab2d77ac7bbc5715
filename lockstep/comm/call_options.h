#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "lockstep/comm/options.h"
#include "lockstep/comm/pack.h"

/// Internal: what the options of one call change about the tensors that an engine gets.
namespace lockstep::comm {

/// Whether tensors of a GPU are exchanged as copies on the CPU, because the call says so.
inline bool goes_through_cpu(at::TensorList tensors, const CommunicationOptions& options) {
  return options.implementation == CommunicationImplementation::Ring && !tensors.empty() && tensors[0].is_cuda();
}

inline std::vector<at::Tensor> copies_on_cpu(at::TensorList tensors) {
  std::vector<at::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().to(at::kCPU));
  return copies;
}

/// Returns `collective(inputs)`. Where the inputs go through the CPU, it gets copies, and results are copied back.
template <typename Collective>
std::vector<at::Tensor> make_results(at::TensorList inputs, const CommunicationOptions& options,
                                     Collective collective) {
  if (!goes_through_cpu(inputs, options)) return collective(inputs);
  const auto copies = copies_on_cpu(inputs);
  auto results = collective(at::TensorList(copies));
  for (at::Tensor& result : results) result = result.to(inputs[0].device());
  return results;
}

/// Calls `collective(inputs, outputs)`. Where the inputs go through the CPU, it gets copies, and outputs are copied
/// back.
template <typename Collective>
void write_results(at::TensorList inputs, at::TensorList outputs, const CommunicationOptions& options,
                   Collective collective) {
  if (!goes_through_cpu(inputs, options)) return collective(inputs, outputs);
  const at::NoGradGuard no_grad;
  const auto copies = copies_on_cpu(inputs);
  std::vector<at::Tensor> targets;
  for (const auto& output : outputs) targets.push_back(at::empty(output.sizes(), output.options().device(at::kCPU)));
  collective(at::TensorList(copies), at::TensorList(targets));
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i].detach().copy_(targets[i]);
}

/// Calls `collective(inputs, outputs)` for each pack of `bytes_per_pack` of the lists. `outputs` may be empty.
template <typename Collective>
void for_each_pack(at::TensorList inputs, at::TensorList outputs, const CommunicationOptions& options,
                   Collective collective) {
  if (options.bytes_per_pack == 0) return collective(inputs, outputs);
  for (const Pack& pack : group_by_size(inputs, options.bytes_per_pack)) {
    const size_t count = pack.end - pack.begin;
    collective(inputs.slice(pack.begin, count), outputs.empty() ? outputs : outputs.slice(pack.begin, count));
  }
}

}  // namespace lockstep::comm
