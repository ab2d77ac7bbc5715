#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

/// The dense parts of a tensor, for moving it to another process: itself, or the indices and values of a sparse one.
namespace lockstep::comm {

/// How many dimensions a part may have: its sizes are sent in a fixed array.
inline constexpr int kMaxDims = 16;

template <typename Use>
void for_each_part(const at::Tensor& tensor, Use&& use) {
  if (tensor.layout() == at::kSparse) {
    use(tensor._indices());
    use(tensor._values());
  } else {
    use(tensor);
  }
}

/// Makes a tensor like `like` of parts: `make(part_of_like)` returns each, in the order of `for_each_part`.
template <typename Make>
at::Tensor from_parts(const at::Tensor& like, Make&& make) {
  if (like.layout() != at::kSparse) return make(like);
  const at::Tensor indices = make(like._indices());
  const at::Tensor values = make(like._values());
  return at::_sparse_coo_tensor_unsafe(indices, values, like.sizes(), values.options().layout(at::kSparse));
}

}  // namespace lockstep::comm
