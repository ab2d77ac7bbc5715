#include <algorithm>

#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/lower/pooling.h"

namespace lockstep::xla {
namespace {

/// How many elements each window of a dimension counts.
struct Extent {
  int64_t length, windows, size, stride, padding;
  bool counts_padding;

  int64_t begin(int64_t window) const { return window * stride - padding; }
  int64_t count(int64_t window) const {
    const int64_t end = std::min(begin(window) + size, length + padding);
    return counts_padding ? end - begin(window) : std::min(end, length) - std::max<int64_t>(begin(window), 0);
  }
  /// One number if it is the same for all.
  Value counts(Dtype dtype) const {
    bool same = true;
    for (int64_t window = 1; window < windows; ++window) same = same && count(window) == count(0);
    if (same) return number(static_cast<double>(count(0)), dtype);
    const Value begins = iota(at::kLong, {windows}, 0) * stride - padding;
    const Value ends = minimum(begins + size, static_cast<double>(length + padding));
    const Value all = counts_padding ? ends - begins : minimum(ends, static_cast<double>(length)) - maximum(begins, 0);
    return convert(all, dtype);
  }
};

/// Divides each window's value by what it counts. `at` is the position of `count_include_pad`.
Value averaged(Value sums, const Call& call, int at, const Value& a, const Pooling& pool) {
  if (!call.is_none(at + 1)) return sums / call.scalar(at + 1, sums->dtype);
  for (int64_t dim = pool.first; dim < rank(a); ++dim) {
    const Extent extent{a->shape[dim],           pool.result[dim],     pool.window.size[dim],
                        pool.window.stride[dim], pool.window.low[dim], call.flag(at)};
    const Value counts = extent.counts(sums->dtype);
    sums = sums / (rank(counts) == 0 ? counts : broadcast_dims(counts, sums->shape, {dim}));
  }
  return sums;
}

template <size_t dims>
Values average_pool(const Call& call) {  // self kernel stride padding ceil_mode count_include_pad divisor_override
  const Value a = widened(call.value(0));
  const Pooling pool = pooling(call, 1, a, dims, call.flag(4), {1});
  const Value sums = reduce_window("add", a, 0, pool.window, pool.result);
  return {convert(averaged(sums, call, 5, a, pool), dtype_of(call, 0))};
}

/// Puts `stride` - 1 zeros between the elements of a dimension.
Value spread(const Value& a, int64_t stride, int64_t dim) {
  if (stride == 1 || a->shape[dim] == 0) return a;
  Shape apart = a->shape;
  apart.insert(apart.begin() + dim + 1, 1);
  Shape low(apart.size(), 0), high(apart.size(), 0), joined = a->shape, end = a->shape;
  high[dim + 1] = stride - 1;
  joined[dim] *= stride;
  end[dim] = (a->shape[dim] - 1) * stride + 1;
  return slice(reshape(pad(reshape(a, apart), 0, low, high), joined), Shape(joined.size(), 0), end);
}

/// Every element of the input gets the sum of the windows that it is in.
Value windows_to_input(Value gradient, const Value& a, const Pooling& pool) {
  Window reach = pool.window;
  for (int64_t dim = pool.first; dim < rank(a); ++dim) {
    gradient = spread(gradient, pool.window.stride[dim], dim);
    reach.stride[dim] = 1;
    reach.low[dim] = reach.size[dim] - 1 - pool.window.low[dim];
    reach.high[dim] = a->shape[dim] + pool.window.low[dim] - gradient->shape[dim];
  }
  return reduce_window("add", gradient, 0, reach, a->shape);
}

template <size_t dims>
Values average_pool_gradient(const Call& call) {  // gradient self kernel stride padding ceil_mode include divisor
  const Value a = call.value(1);
  const Pooling pool = pooling(call, 2, a, dims, call.flag(5), {1});
  const Value gradient = averaged(widened(call.value(0)), call, 6, a, pool);
  return {convert(windows_to_input(gradient, a, pool), dtype_of(call, 0))};
}

/// [results, length]: each row averages the elements that belong to one result of an adaptive pooling.
Value averaging_matrix(Dtype dtype, int64_t results, int64_t length) {
  const Shape shape{results, length};
  const Value row = iota(at::kLong, shape, 0), column = iota(at::kLong, shape, 1);
  const Value begin = row * length / results;
  const Value end = ((row + 1) * length + (results - 1)) / results;
  const Value inside = both(compare("GE", column, begin), compare("LT", column, end));
  return convert(inside, dtype) / convert(end - begin, dtype);
}

template <int64_t dims>
Values adaptive_average_pool(const Call& call) {  // self output_size
  Value a = widened(call.value(0));
  const std::vector<int64_t> results = expanded(call.integers(1), dims);
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t dim = rank(a) - dims + i, length = a->shape[dim];
    if (results[i] == length) continue;
    a = apply_along(a, averaging_matrix(a->dtype, results[i], length), dim);
  }
  return {convert(a, dtype_of(call, 0))};
}

template <int64_t dims>
Values adaptive_average_pool_gradient(const Call& call) {  // gradient self
  Value gradient = widened(call.value(0));
  for (int64_t dim = rank(gradient) - dims; dim < rank(gradient); ++dim) {
    const int64_t results = gradient->shape[dim], length = call.tensor(1).size(dim);
    if (results == length) continue;
    gradient = apply_along(gradient, transpose(averaging_matrix(gradient->dtype, results, length), {1, 0}), dim);
  }
  return {convert(gradient, dtype_of(call, 0))};
}

const Lowering kAveragePools[] = {
    {"avg_pool2d", average_pool<2>},
    {"avg_pool2d_backward", average_pool_gradient<2>},
    {"avg_pool3d", average_pool<3>},
    {"avg_pool3d_backward", average_pool_gradient<3>},
    {"_adaptive_avg_pool2d", adaptive_average_pool<2>},
    {"_adaptive_avg_pool2d_backward", adaptive_average_pool_gradient<2>},
    {"_adaptive_avg_pool3d", adaptive_average_pool<3>},
    {"_adaptive_avg_pool3d_backward", adaptive_average_pool_gradient<3>},
};

}  // namespace

Lowerings average_pool_lowerings() { return kAveragePools; }

}  // namespace lockstep::xla
