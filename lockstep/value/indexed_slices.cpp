#include "lockstep/value/indexed_slices.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"

namespace lockstep {

at::Tensor IndexedSlices::to_dense() const {
  at::Tensor dense = at::zeros(dense_shape, values.options());
  return dense.index_add_(0, indices.to(at::kLong), values);
}

at::Tensor IndexedSlices::to_sparse() const {
  return at::_sparse_coo_tensor_unsafe(indices.to(at::kLong).unsqueeze(0), values, dense_shape);
}

IndexedSlices IndexedSlices::from_sparse(const at::Tensor& sparse) {
  LOCKSTEP_CHECK_VALUE(sparse.is_sparse() && sparse.sparse_dim() == 1,
                       "[IndexedSlices] the tensor must be sparse in its first dimension only: shape=", sparse.sizes());
  return {sparse._indices().squeeze(0), sparse._values(), sparse.sizes().vec()};
}

IndexedSlices concatenate(const std::vector<IndexedSlices>& parts) {
  LOCKSTEP_CHECK_VALUE(!parts.empty(), "[concatenate] at least one IndexedSlices is needed");
  std::vector<at::Tensor> indices;
  std::vector<at::Tensor> values;
  for (const IndexedSlices& part : parts) {
    LOCKSTEP_CHECK_VALUE(part.dense_shape == parts[0].dense_shape,
                         "[concatenate] all slices must be of one dense shape: first=",
                         at::IntArrayRef(parts[0].dense_shape), ", other=", at::IntArrayRef(part.dense_shape));
    indices.push_back(part.indices.to(parts[0].indices.device()));
    values.push_back(part.values.to(parts[0].values.device()));
  }
  return {at::cat(indices), at::cat(values), parts[0].dense_shape};
}

}  // namespace lockstep
