#include "lockstep/strategy/input/stack_lists.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {

at::Tensor stack_arrays(const std::vector<at::Tensor>& arrays) {
  LOCKSTEP_CHECK_VALUE(!arrays.empty(), "[make_numpy_dataset] a list must have at least one array");
  for (const at::Tensor& array : arrays) {
    LOCKSTEP_CHECK_VALUE(
        array.sizes() == arrays[0].sizes() && array.dtype() == arrays[0].dtype(),
        "[make_numpy_dataset] the arrays of a list are stacked, so they must have one shape and dtype: ",
        arrays[0].sizes(), " ", arrays[0].dtype(), " and ", array.sizes(), " ", array.dtype(),
        "; use a tuple for arrays that belong together");
  }
  return at::stack(arrays);
}

at::Tensor stack_numbers(const void* numbers, size_t count, at::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(numbers), {static_cast<int64_t>(count)}, dtype).clone();
}

}  // namespace lockstep::detail
