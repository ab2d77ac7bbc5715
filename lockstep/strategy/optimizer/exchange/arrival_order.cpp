#include "lockstep/strategy/optimizer/exchange/arrival_order.h"

#include <mutex>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::detail {

struct ArrivalOrder::State {
  std::mutex mutex;
  std::vector<size_t> order;
  std::vector<char> is_known;
  /// A parameter has only a weak reference to its own.
  std::vector<decltype(torch::autograd::impl::grad_accumulator(at::Tensor()))> accumulators;
};

namespace {

/// Called by LibTorch after a parameter's gradient has been written.
class ArrivalHook final : public torch::autograd::FunctionPostHook {
 public:
  ArrivalHook(std::weak_ptr<ArrivalOrder::State> state, size_t parameter)
      : state_(std::move(state)), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    if (const auto state = state_.lock()) {
      const std::lock_guard lock(state->mutex);
      if (state->is_known[parameter_] == 0) state->order.push_back(parameter_);
      state->is_known[parameter_] = 1;
    }
    return outputs;
  }

 private:
  std::weak_ptr<ArrivalOrder::State> state_;
  size_t parameter_;
};

}  // namespace

ArrivalOrder::ArrivalOrder(const std::vector<at::Tensor>& parameters) : state_(std::make_shared<State>()) {
  state_->is_known.assign(parameters.size(), 0);
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!parameters[p].requires_grad() || !parameters[p].is_leaf()) continue;
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[p]);
    accumulator->add_post_hook(std::make_unique<ArrivalHook>(state_, p));
    state_->accumulators.push_back(std::move(accumulator));
  }
}

std::vector<size_t> ArrivalOrder::get() const {
  const std::lock_guard lock(state_->mutex);
  return state_->order;
}

}  // namespace lockstep::detail
