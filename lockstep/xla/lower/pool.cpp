#include <cmath>

#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/lower/pooling.h"

namespace lockstep::xla {
namespace {

/// The place of each element among those of its pooled dimensions.
Value places(const Value& a, int64_t first) {
  Value place = iota(at::kLong, a->shape, first);
  for (int64_t dim = first + 1; dim < rank(a); ++dim) {
    place = place * a->shape[dim] + iota(at::kLong, a->shape, dim);
  }
  return place;
}

template <size_t dims>
Values max_pool(const Call& call) {  // self kernel_size stride padding dilation ceil_mode
  const Value a = call.value(0);
  const Pooling pool = pooling(call, 1, a, dims, call.flag(5), call.integers(4));
  return {reduce_window("maximum", a, -INFINITY, pool.window, pool.result),
          window_max_index(a, places(a, pool.first), pool.window, pool.result)};
}

/// Where windows have gaps: by the places that were found in the forward pass.
Value scattered(const Value& a, const Value& gradient, const Value& indices, int64_t first) {
  int64_t rows = 1;
  for (int64_t dim = 0; dim < first; ++dim) rows *= a->shape[dim];
  const int64_t length = rows == 0 ? 0 : a->numel() / rows, found = rows == 0 ? 0 : gradient->numel() / rows;
  const Value row = iota(at::kLong, {rows, found}, 0) * length;
  const Value index = reshape(row + reshape(indices, {rows, found}), {rows * found});
  const Value flat = scatter("add", fill(0, a->dtype, {rows * length}), index, reshape(gradient, {rows * found}));
  return reshape(flat, a->shape);
}

/// Windows of select_and_scatter lie inside: padding is made explicit, and cut off afterwards.
Value selected(const Value& a, const Value& gradient, const Pooling& pool) {
  Shape low(pool.window.low.begin(), pool.window.low.end()), high(pool.window.high.begin(), pool.window.high.end());
  Shape end = a->shape;
  for (size_t i = 0; i < low.size(); ++i) {
    high[i] = std::max<int64_t>(high[i], 0);
    end[i] += low[i];
  }
  Window inside = pool.window;
  inside.low.assign(low.size(), 0);
  inside.high.assign(low.size(), 0);
  return slice(select_and_scatter(pad(a, -INFINITY, low, high), gradient, inside), low, end);
}

template <size_t dims>
Values max_pool_gradient(const Call& call) {  // gradient self kernel stride padding dilation ceil_mode indices
  const Value gradient = call.value(0), a = call.value(1);
  const Pooling pool = pooling(call, 2, a, dims, call.flag(6), call.integers(5));
  for (int64_t dilation : pool.window.dilation) {
    if (dilation != 1) return {scattered(a, gradient, call.value(7), pool.first)};
  }
  return {selected(a, gradient, pool)};
}

bool is_floating(const Call& call) { return is_float(dtype_of(call, 0)); }

const Lowering kPoolings[] = {
    {"max_pool2d_with_indices", max_pool<2>, is_floating},
    {"max_pool2d_with_indices_backward", max_pool_gradient<2>, is_floating},
    {"max_pool3d_with_indices", max_pool<3>, is_floating},
    {"max_pool3d_with_indices_backward", max_pool_gradient<3>, is_floating},
};

}  // namespace

Lowerings pool_lowerings() { return kPoolings; }

}  // namespace lockstep::xla
