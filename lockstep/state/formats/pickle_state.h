#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/api.h"
#include "lockstep/state/formats/pickle.h"
#include "lockstep/state/state.h"

/// Internal: names and values of a pickle.
namespace lockstep::detail {

/// Names and values of a pickle: names of nested dictionaries and numbers of lists are joined by dots. Tensors come
/// from `make_tensor`. DataError with `place` where it is no dictionary, or has circles.
LOCKSTEP_API State flatten_pickle(const Pickle& pickle, const std::string& place,
                                  const std::function<StateTensor(const PickleTensor&)>& make_tensor);

/// The dtype of a tensor, and how many elements of its storage it reaches from its offset on, after all checks.
struct TensorExtent {
  at::ScalarType dtype = at::kFloat;
  int64_t reached = 0;
  bool contiguous = false;
};
LOCKSTEP_API TensorExtent extent_of(const PickleTensor& tensor, const std::string& place);

}  // namespace lockstep::detail
