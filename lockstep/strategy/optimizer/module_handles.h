#pragma once

#include <functional>

#include <torch/nn/module.h>

namespace lockstep::detail {

/// Internal: calls `visit` with each place in a module and its submodules that holds a tensor, as far as they are
/// known: registered parameters and buffers, and the members of LibTorch's own modules. `visit` may replace the tensor.
///
/// LibTorch cannot replace a registered tensor, and a module may hold it in members of its own, which are not found.
void visit_tensors(torch::nn::Module& module, const std::function<void(at::Tensor&)>& visit);

/// Returns how many of these places hold `tensor`.
size_t count_handles(torch::nn::Module& module, const at::Tensor& tensor);

/// Puts `to` in all these places that hold `from`.
void replace_handles(torch::nn::Module& module, const at::Tensor& from, const at::Tensor& to);

}  // namespace lockstep::detail
