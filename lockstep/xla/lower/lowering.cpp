#include "lockstep/xla/lower/lowering.h"

#include <algorithm>
#include <numeric>

#include <c10/core/DefaultDtype.h>

#include "lockstep/xla/precision.h"

namespace lockstep::xla {

std::vector<Lowering> all_lowerings() {
  std::vector<Lowering> all;
  for (Lowerings family : {arithmetic_lowerings(), elementary_lowerings(), logic_lowerings(),   activation_lowerings(),
                           reduce_lowerings(),     softmax_lowerings(),    matmul_lowerings(),  convolution_lowerings(),
                           pool_lowerings(),       resize_lowerings(),     padding_lowerings(), batch_norm_lowerings(),
                           norm_lowerings(),       loss_lowerings(),       index_lowerings(),   scatter_lowerings(),
                           sort_lowerings(),       shape_lowerings(),      factory_lowerings(), random_lowerings(),
                           column_lowerings(),     distance_lowerings()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

int64_t wrap_dim(int64_t dim, int64_t rank) { return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim; }

std::vector<int64_t> wrap_dims(std::vector<int64_t> dims, int64_t rank) {
  if (rank == 0) return {};
  if (dims.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (int64_t& dim : dims) dim = wrap_dim(dim, rank);
  return dims;
}

std::vector<int64_t> all_dims(const Value& a) { return wrap_dims({}, static_cast<int64_t>(a->shape.size())); }

int64_t product(Ints shape, Ints dims) {
  int64_t result = 1;
  for (int64_t dim : dims) result *= shape[dim];
  return result;
}

Dtype floating(Dtype dtype) { return is_float(dtype) ? dtype : c10::get_default_dtype_as_scalartype(); }

std::vector<int64_t> expanded(std::vector<int64_t> values, size_t count) {
  if (values.size() == 1) values.assign(count, values[0]);
  return values;
}

bool narrows(const Value& a, const Value& b) {
  return a->dtype == at::kFloat && b->dtype == at::kFloat && narrows_products();
}

Value apply_along(const Value& a, const Value& matrix, int64_t dim) {
  const Value moved = dot(a, matrix, {}, {}, {dim}, {1});
  std::vector<int64_t> order(a->shape.size());
  std::iota(order.begin(), order.end(), 0);
  order.pop_back();
  order.insert(order.begin() + dim, static_cast<int64_t>(a->shape.size()) - 1);
  return transpose(moved, order);
}

}  // namespace lockstep::xla
