#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::detail {

/// Internal: is told when backward passes write the gradients of parameters, for as long as this object lives.
class GradientHooks {
 public:
  /// `received` is what the node that wrote the gradient was given.
  using Written = std::function<void(size_t parameter, const std::vector<at::Tensor>& received)>;

  GradientHooks() = default;
  /// Calls `written` on the thread that computes gradients, for the parameters without a zero in `taken`, which need
  /// gradients. It is not called when `owner` is gone, which is kept for as long as a call takes.
  GradientHooks(const std::vector<at::Tensor>& parameters, const std::vector<char>& taken,
                const std::weak_ptr<void>& owner, const Written& written);

 private:
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));

  /// What LibTorch calls hooks of. A parameter has only a weak reference to its own.
  std::vector<Accumulator> accumulators_;
};

}  // namespace lockstep::detail
