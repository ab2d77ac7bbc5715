#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/exchange/gradient_lists.h"

// This LibTorch has no such functions.
namespace lockstep::detail {

bool are_lists_used(const std::vector<at::Tensor>& /*numbers*/) { return false; }

at::Tensor clip_norm_of_lists(std::vector<at::Tensor>& /*numbers*/, double /*max_norm*/) {
  LOCKSTEP_ASSERT(false, "no functions for lists");
}

void clip_values_of_lists(std::vector<at::Tensor>& /*numbers*/, double /*max_value*/) {
  LOCKSTEP_ASSERT(false, "no functions for lists");
}

}  // namespace lockstep::detail
