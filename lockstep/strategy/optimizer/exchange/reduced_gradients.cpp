#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"

#include <mutex>
#include <unordered_map>

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

/// What is known of the gradient of a parameter, for all optimizers of the parameter. One replica uses it.
struct ReducedGradients::Entry : Known {
  at::Tensor parameter;
  /// The node that adds to the gradient, with our hook. A parameter has only a weak reference to it.
  GradientAccumulator accumulator;

  bool holds_sum() const {
    const at::Tensor& gradient = parameter.grad();
    return sum && gradient.defined() && sum->_unsafe_get_target() == gradient.unsafeGetTensorImpl();
  }

  void take_share() {
    const bool is_sum = holds_sum();
    sum.reset();
    if (!is_sum) return;
    at::Tensor& gradient = parameter.mutable_grad();
    if (share.kind == SumShare::Part) {
      const at::NoGradGuard no_grad;
      gradient.div_(share.num_parts);
    } else if (share.kind == SumShare::None) {
      gradient.reset();
    }
  }
};

namespace {

using Entry = ReducedGradients::Entry;

/// The entries of all parameters that an optimizer has.
class Entries {
 public:
  std::shared_ptr<Entry> of(const at::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Entry>& known = entries_[parameter.unsafeGetTensorImpl()];
    std::shared_ptr<Entry> entry = known.lock();
    if (entry) return entry;
    entry = std::make_shared<Entry>();
    entry->parameter = parameter;
    known = entry;
    if (entries_.size() > limit_) {
      std::erase_if(entries_, [](const auto& item) { return item.second.expired(); });
      limit_ = 2 * entries_.size() + 64;
    }
    return entry;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, std::weak_ptr<Entry>> entries_;
  /// With more entries than this, those that nobody uses are dropped.
  size_t limit_ = 64;
};

Entries& all_entries() {
  static auto* const entries = new Entries;  // optimizers may be destroyed at the very end
  return *entries;
}

}  // namespace

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

ReducedGradients::ReducedGradients(const std::vector<at::Tensor>& parameters, SumShare share) : share_(share) {
  for (const at::Tensor& parameter : parameters) entries_.push_back(all_entries().of(parameter));
}

ReducedGradients::~ReducedGradients() = default;

bool ReducedGradients::is_sum(size_t parameter) const {
  const Entry& entry = *entries_[parameter];
  if (!entry.sum || !entry.parameter.grad().defined()) return false;
  const bool is_same = entry.holds_sum();
  LOCKSTEP_CHECK_VALUE(is_same || entry.used, "[optimizer] the gradient of a parameter was replaced by another tensor ",
                       "after it was reduced: parameter=", parameter, ", shape=", entry.parameter.sizes(),
                       "; write to the reduced gradient in place, or call zero_grad() before a new gradient is set");
  return is_same;
}

void ReducedGradients::mark(size_t parameter) {
  Entry& entry = *entries_[parameter];
  const at::Tensor& tensor = entry.parameter;
  entry.used = false;
  entry.share = share_;
  entry.sum = WeakTensor(tensor.grad().getIntrusivePtr());
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  // Another dtype or device of the parameter has another accumulator.
  auto accumulator = torch::autograd::impl::grad_accumulator(tensor);
  if (accumulator == entry.accumulator) return;
  accumulator->add_pre_hook(std::make_unique<BeforeAccumulation>([weak = std::weak_ptr(entries_[parameter])] {
    if (const auto shared = weak.lock()) shared->take_share();
  }));
  entry.accumulator = std::move(accumulator);
}

void ReducedGradients::take_share(size_t parameter) { entries_[parameter]->take_share(); }

void ReducedGradients::set_used() {
  for (const auto& entry : entries_) entry->used = true;
}

std::vector<ReducedGradients::Known> ReducedGradients::known() const {
  std::vector<Known> all;
  for (const auto& entry : entries_) all.push_back(*entry);
  return all;
}

void ReducedGradients::restore(const std::vector<Known>& known) {
  for (size_t i = 0; i < known.size(); ++i) static_cast<Known&>(*entries_[i]) = known[i];
}

void ReducedGradients::clear() {
  for (const auto& entry : entries_) entry->sum.reset();
}

}  // namespace lockstep::detail
