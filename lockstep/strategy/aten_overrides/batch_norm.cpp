#include "lockstep/strategy/aten_overrides/batch_norm.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/aten_overrides/dispatch_mode.h"

namespace lockstep::detail {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// A weak pointer keeps the address from being used again, so an address that is found is that of the marked tensor.
class MarkedTensors {
 public:
  void add(const at::Tensor& tensor) {
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    if (marked_.size() >= most_) {
      std::erase_if(marked_, [](const auto& each) { return each.second.expired(); });
      most_ = std::max(most_, 2 * marked_.size());
    }
    marked_.emplace(tensor.unsafeGetTensorImpl(), WeakTensor(tensor.getIntrusivePtr()));
  }

  bool has(const at::Tensor& tensor) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    return marked_.count(tensor.unsafeGetTensorImpl()) > 0;
  }

 private:
  mutable std::shared_mutex mutex_;
  size_t most_ = 1024;
  std::unordered_map<const c10::TensorImpl*, WeakTensor> marked_;
};

/// Never destroyed: threads may still call the function when the process ends.
MarkedTensors& marked_tensors() {
  static auto& marked = *new MarkedTensors;
  return marked;
}

std::atomic<bool> any_marked{false};
std::atomic<SynchronisedBatchNorm> synchronised_function{nullptr};

using OptionalTensor = c10::optional<at::Tensor>;

at::Tensor or_undefined(const OptionalTensor& tensor) { return tensor ? *tensor : at::Tensor(); }

/// Replaces LibTorch's function of that name.
at::Tensor batch_norm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                      const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                      double momentum, double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard once(kModeKey);
  const at::Tensor mean = or_undefined(running_mean), factors = or_undefined(weight);
  if (training && (BatchNormOverride::is_marked(mean) || BatchNormOverride::is_marked(factors))) {
    const at::Tensor made = synchronised_function.load()(
        {input, factors, or_undefined(bias), mean, or_undefined(running_var), momentum, eps});
    if (made.defined()) return made;
  }
  return at::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

}  // namespace

void BatchNormOverride::prepare() {
  [[maybe_unused]] static const bool registered =
      register_mode_functions([](torch::Library& library) { library.impl("batch_norm", TORCH_FN(batch_norm)); });
}

void BatchNormOverride::set_function(SynchronisedBatchNorm function) { synchronised_function.store(function); }

void BatchNormOverride::mark(const at::Tensor& tensor) {
  LOCKSTEP_ASSERT(synchronised_function.load() != nullptr, "marks without a function");
  if (!tensor.defined()) return;
  marked_tensors().add(tensor);
  any_marked.store(true);
}

bool BatchNormOverride::is_marked(const at::Tensor& tensor) {
  return is_used() && tensor.defined() && marked_tensors().has(tensor);
}

void BatchNormOverride::carry_mark(const at::Tensor& tensor, const at::Tensor& copy) {
  if (is_marked(tensor)) mark(copy);
}

bool BatchNormOverride::is_used() { return any_marked.load(std::memory_order_relaxed); }

}  // namespace lockstep::detail
