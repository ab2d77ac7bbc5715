#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/strategy/optimizer/replica_parameters.h"
#include "lockstep/strategy/optimizer/update/update_plan.h"

namespace lockstep::detail {

/// Internal: what parameters were when their updates were planned. Values, memory, strides and `requires_grad` may
/// change at any time: they are read anew in every step.
class PlannedParameters {
 public:
  PlannedParameters() = default;
  explicit PlannedParameters(const ReplicaParameters& replica);

  size_t size() const { return planned_.size(); }
  /// Whether the plan holds for the parameters.
  bool fit(const ReplicaParameters& now) const;
  /// Throws, with the name of the parameter, if it does not.
  void check(const ReplicaParameters& now, const UpdateMethods& methods) const;

 private:
  struct Planned {
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
    bool can_be_sharded;
  };

  bool fits(const ReplicaParameters& now, size_t parameter) const;

  std::vector<Planned> planned_;
};

}  // namespace lockstep::detail
