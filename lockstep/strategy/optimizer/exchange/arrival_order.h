#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: the order in which backward passes write the gradients of one replica, for as long as this object lives.
class LOCKSTEP_API ArrivalOrder {
 public:
  explicit ArrivalOrder(const std::vector<at::Tensor>& parameters);

  /// The parameters that backward has reached, in the order of the first time.
  std::vector<size_t> get() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail
