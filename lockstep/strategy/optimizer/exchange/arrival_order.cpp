#include "lockstep/strategy/optimizer/exchange/arrival_order.h"

#include <mutex>

#include "lockstep/strategy/optimizer/exchange/gradient_hooks.h"

namespace lockstep::detail {

struct ArrivalOrder::State {
  std::mutex mutex;
  std::vector<size_t> order;
  std::vector<char> is_known;
  GradientHooks hooks;

  void note(size_t parameter) {
    const std::lock_guard lock(mutex);
    if (is_known[parameter] == 0) order.push_back(parameter);
    is_known[parameter] = 1;
  }
};

ArrivalOrder::ArrivalOrder(const std::vector<at::Tensor>& parameters) : state_(std::make_shared<State>()) {
  state_->is_known.assign(parameters.size(), 0);
  std::vector<char> taken;
  for (const at::Tensor& parameter : parameters) {
    taken.push_back(parameter.requires_grad() && parameter.is_leaf() ? 1 : 0);
  }
  const auto written = [state = state_.get()](size_t parameter, const std::vector<at::Tensor>& /*received*/) {
    state->note(parameter);
  };
  state_->hooks = GradientHooks(parameters, taken, state_, written);
}

std::vector<size_t> ArrivalOrder::get() const {
  const std::lock_guard lock(state_->mutex);
  return state_->order;
}

}  // namespace lockstep::detail
