#include "lockstep/strategy/variable/variable_options.h"

#include "lockstep/base/error.h"

namespace lockstep {

std::ostream& operator<<(std::ostream& out, VariableSynchronization synchronization) {
  constexpr const char* kNames[] = {"AUTO", "NONE", "ON_WRITE", "ON_READ"};
  return out << "VariableSynchronization." << kNames[static_cast<int>(synchronization)];
}

std::ostream& operator<<(std::ostream& out, VariableAggregation aggregation) {
  constexpr const char* kNames[] = {"NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"};
  return out << "VariableAggregation." << kNames[static_cast<int>(aggregation)];
}

VariableOperand::VariableOperand(const PerReplica<at::Tensor>& value)
    : kind_(value.is_bare() ? Kind::Plain : Kind::PerReplica),
      plain_(value[0]),
      components_(value.begin(), value.end()) {}

VariableOperand::VariableOperand(const Mirrored<at::Tensor>& value)
    : kind_(Kind::Mirrored), plain_(value[0]), components_(value.begin(), value.end()) {}

const at::Tensor& VariableOperand::at(int component) const {
  if (kind_ == Kind::Plain) return plain_;
  LOCKSTEP_CHECK_VALUE(component < static_cast<int>(components_.size()),
                       "[Variable] the value must have a component for each copy: components=", components_.size(),
                       ", copy=", component);
  return components_[component];
}

}  // namespace lockstep
