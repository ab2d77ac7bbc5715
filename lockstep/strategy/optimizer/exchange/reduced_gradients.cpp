#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

using GradientAccumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

}  // namespace

struct ReducedGradients::State {
  struct Entry {
    /// Weak: it keeps the identity of the gradient, not its memory.
    std::optional<WeakTensor> sum;
    bool used = false;
    /// The node that adds to the gradient, with our hook. A parameter has only a weak reference to it.
    GradientAccumulator accumulator;
  };

  std::vector<at::Tensor> parameters;
  SumShare share;
  std::optional<GradientWeight> weight;
  bool any_marked = false;
  std::vector<Entry> entries;

  bool holds_sum(size_t parameter) const {
    const auto& sum = entries[parameter].sum;
    const at::Tensor& gradient = parameters[parameter].grad();
    return sum && gradient.defined() && sum->_unsafe_get_target() == gradient.unsafeGetTensorImpl();
  }

  void take_share(size_t parameter) {
    const bool is_sum = holds_sum(parameter);
    entries[parameter].sum.reset();
    if (!is_sum) return;
    at::Tensor& gradient = parameters[parameter].mutable_grad();
    if (share.kind == SumShare::Part) {
      const at::NoGradGuard no_grad;
      gradient.div_(share.num_parts);
    } else if (share.kind == SumShare::None) {
      gradient.reset();
    }
  }
};

namespace {

/// Called by LibTorch before it adds to a parameter's gradient.
class BeforeAccumulation final : public torch::autograd::FunctionPreHook {
 public:
  BeforeAccumulation(std::function<void()> call) : call_(std::move(call)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

ReducedGradients::ReducedGradients(std::vector<at::Tensor> parameters, SumShare share)
    : state_(std::make_shared<State>()) {
  state_->parameters = std::move(parameters);
  state_->share = share;
  state_->entries.resize(state_->parameters.size());
}

ReducedGradients::~ReducedGradients() = default;

bool ReducedGradients::is_sum(size_t parameter) const {
  const State::Entry& entry = state_->entries[parameter];
  if (!entry.sum || !state_->parameters[parameter].grad().defined()) return false;
  const bool is_same = state_->holds_sum(parameter);
  LOCKSTEP_CHECK_VALUE(is_same || entry.used, "[optimizer] the gradient of a parameter was replaced by another tensor ",
                       "after it was reduced: parameter=", parameter, ", shape=", state_->parameters[parameter].sizes(),
                       "; write to the reduced gradient in place, or call zero_grad() before a new gradient is set");
  return is_same;
}

void ReducedGradients::mark(size_t parameter) {
  State::Entry& entry = state_->entries[parameter];
  const at::Tensor& tensor = state_->parameters[parameter];
  state_->any_marked = true;
  entry.used = false;
  entry.sum = WeakTensor(tensor.grad().getIntrusivePtr());
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  // Another dtype or device of the parameter has another accumulator.
  auto accumulator = torch::autograd::impl::grad_accumulator(tensor);
  if (accumulator == entry.accumulator) return;
  accumulator->add_pre_hook(std::make_unique<BeforeAccumulation>([weak = std::weak_ptr(state_), parameter] {
    if (const auto state = weak.lock()) state->take_share(parameter);
  }));
  entry.accumulator = std::move(accumulator);
}

void ReducedGradients::take_share(size_t parameter) { state_->take_share(parameter); }

void ReducedGradients::set_weight(std::optional<GradientWeight> weight) { state_->weight = std::move(weight); }

const std::optional<GradientWeight>& ReducedGradients::weight() const { return state_->weight; }

bool ReducedGradients::any_marked() const { return state_->any_marked; }

void ReducedGradients::set_used() {
  for (State::Entry& entry : state_->entries) entry.used = true;
}

void ReducedGradients::clear() {
  if (!state_->any_marked) return;
  state_->any_marked = false;
  for (State::Entry& entry : state_->entries) entry.sum.reset();
}

}  // namespace lockstep::detail
