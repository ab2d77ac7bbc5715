#include "lockstep/xla/lower/pooling.h"

#include <algorithm>
#include <numeric>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {

Pooling pooling(const Call& call, int at, const Value& a, size_t dims, bool round_up, std::vector<int64_t> dilation) {
  const std::vector<int64_t> size = expanded(call.integers(at), dims), padding = expanded(call.integers(at + 2), dims);
  std::vector<int64_t> stride = expanded(call.integers(at + 1), dims);
  if (stride.empty()) stride = size;
  dilation = expanded(std::move(dilation), dims);
  const std::vector<int64_t> ones(a->shape.size(), 1), zeros(a->shape.size(), 0);
  Pooling pool{{ones, ones, zeros, zeros, ones}, a->shape, rank(a) - static_cast<int64_t>(dims)};
  for (size_t i = 0; i < dims; ++i) {
    const size_t dim = pool.first + i;
    const int64_t length = a->shape[dim], reach = dilation[i] * (size[i] - 1) + 1;
    const int64_t room = length + 2 * padding[i] - reach;
    int64_t windows = (round_up ? (room + stride[i] - 1) / stride[i] : room / stride[i]) + 1;
    if (round_up && (windows - 1) * stride[i] >= length + padding[i]) --windows;
    pool.result[dim] = windows;
    pool.window.size[dim] = size[i];
    pool.window.stride[dim] = stride[i];
    pool.window.low[dim] = padding[i];
    pool.window.high[dim] = (windows - 1) * stride[i] + reach - length - padding[i];
    pool.window.dilation[dim] = dilation[i];
  }
  return pool;
}

Value apply_along(const Value& a, const Value& matrix, int64_t dim) {
  const Value moved = dot(a, matrix, {}, {}, {dim}, {1});
  std::vector<int64_t> order(a->shape.size());
  std::iota(order.begin(), order.end(), 0);
  order.pop_back();
  order.insert(order.begin() + dim, rank(a) - 1);
  return transpose(moved, order);
}

}  // namespace lockstep::xla
