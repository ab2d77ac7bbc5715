#include "lockstep/strategy/optimizer/parameter_writes.h"

#include "lockstep/strategy/optimizer/tensor_mark.h"

namespace lockstep::detail {

ParameterWrites::Count ParameterWrites::of(const at::Tensor& parameter) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<uint32_t>& known = counts_[parameter.unsafeGetTensorImpl()];
  Count count = known.lock();
  if (!count) {
    count = std::make_shared<uint32_t>(0);
    known = count;
    if (counts_.size() > limit_) {
      std::erase_if(counts_, [](const auto& entry) { return entry.second.expired(); });
      limit_ = 2 * counts_.size() + 64;
    }
  }
  return count;
}

bool ParameterWrites::knows(const at::Tensor& parameter) {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(parameter.unsafeGetTensorImpl());
  return found != counts_.end() && !found->second.expired();
}

OptimizerWrites::OptimizerWrites(ParameterWrites& writes, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) parameters_.push_back({parameter, writes.of(parameter)});
}

OptimizerWrites::Scope::Scope(OptimizerWrites& writes) : writes_(writes) {
  for (Parameter& parameter : writes_.parameters_) parameter.before = version_of(parameter.tensor);
}

OptimizerWrites::Scope::~Scope() {
  for (Parameter& parameter : writes_.parameters_) *parameter.count += version_of(parameter.tensor) - parameter.before;
}

}  // namespace lockstep::detail
