#include "lockstep/strategy/optimizer/exchange/gradient_hooks.h"

#include <utility>

#include <torch/csrc/autograd/function_hook.h>

namespace lockstep::detail {
namespace {

using Variables = torch::autograd::variable_list;

/// Called by LibTorch after a parameter's gradient has been written.
class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(std::weak_ptr<void> owner, size_t parameter, GradientHooks::Written written)
      : owner_(std::move(owner)), parameter_(parameter), written_(std::move(written)) {}

  Variables operator()(const Variables& outputs, const Variables& inputs) override {
    if (const auto owner = owner_.lock()) written_(parameter_, inputs);
    return outputs;
  }

 private:
  std::weak_ptr<void> owner_;
  size_t parameter_;
  GradientHooks::Written written_;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters, const std::vector<char>& taken,
                             const std::weak_ptr<void>& owner, const Written& written) {
  for (size_t p = 0; p < taken.size(); ++p) {
    if (taken[p] == 0) continue;
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[p]);
    accumulator->add_post_hook(std::make_unique<GradientHook>(owner, p, written));
    accumulators_.push_back(std::move(accumulator));
  }
}

}  // namespace lockstep::detail
