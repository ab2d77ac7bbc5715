#include <algorithm>
#include <cmath>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Windows over the last dimensions of an input.
struct Pooling {
  /// One entry for each dimension of the input.
  Window window;
  Shape result;
  /// The first dimension that is pooled.
  int64_t first;
};

/// The windows of a call whose arguments `kernel_size`, `stride` (none: the size), `padding` begin at position `at`.
/// `round_up` counts a last window that reaches beyond the padding, but not one that begins there.
Pooling pooling(const AtenCall& call, int at, const Value& a, size_t dims, bool round_up,
                std::vector<int64_t> dilation) {
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

/// The position of each element among those of its pooled dimensions.
Value positions(const Value& a, int64_t first) {
  Value position = iota(at::kLong, a->shape, first);
  for (int64_t dim = first + 1; dim < rank(a); ++dim) {
    position = position * a->shape[dim] + iota(at::kLong, a->shape, dim);
  }
  return position;
}

template <size_t dims>
Values max_pool(const AtenCall& call) {  // self kernel_size stride padding dilation ceil_mode
  const Value a = call.value(0);
  const Pooling pool = pooling(call, 1, a, dims, call.flag(5), call.integers(4));
  return {reduce_window(Combiner::Maximum, a, -INFINITY, pool.window, pool.result),
          window_max_index(a, positions(a, pool.first), pool.window, pool.result)};
}

/// The gradient of dilated windows: scattered to the positions that the forward pass found.
Value scattered_to_maxima(const Value& a, const Value& gradient, const Value& indices, int64_t first) {
  int64_t rows = 1;
  for (int64_t dim = 0; dim < first; ++dim) rows *= a->shape[dim];
  const int64_t length = rows == 0 ? 0 : a->numel() / rows, found = rows == 0 ? 0 : gradient->numel() / rows;
  const Value row = iota(at::kLong, {rows, found}, 0) * length;
  const Value index = reshape(row + reshape(indices, {rows, found}), {rows * found});
  const Value flat =
      scatter(Combiner::Add, fill(0, a->dtype, {rows * length}), index, reshape(gradient, {rows * found}));
  return reshape(flat, a->shape);
}

/// The gradient by select_and_scatter, whose windows lie inside the operand: padding is added before and cut off after.
Value scattered_by_selection(const Value& a, const Value& gradient, const Pooling& pool) {
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
Values max_pool_gradient(const AtenCall& call) {  // gradient self kernel stride padding dilation ceil_mode indices
  const Value gradient = call.value(0), a = call.value(1);
  const Pooling pool = pooling(call, 2, a, dims, call.flag(6), call.integers(5));
  for (int64_t dilation : pool.window.dilation) {
    if (dilation != 1) return {scattered_to_maxima(a, gradient, call.value(7), pool.first)};
  }
  return {scattered_by_selection(a, gradient, pool)};
}

bool is_floating(const AtenCall& call) { return is_float(dtype_of(call, 0)); }

/// How many elements each window of a dimension counts.
struct Extent {
  int64_t length, windows, size, stride, padding;
  bool counts_padding;

  int64_t begin(int64_t window) const { return window * stride - padding; }
  int64_t count(int64_t window) const {
    const int64_t end = std::min(begin(window) + size, length + padding);
    return counts_padding ? end - begin(window) : std::min(end, length) - std::max<int64_t>(begin(window), 0);
  }
  /// One number if all windows count as many.
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
Value averaged(Value sums, const AtenCall& call, int at, const Value& a, const Pooling& pool) {
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
Values average_pool(const AtenCall& call) {  // self kernel stride padding ceil_mode count_include_pad divisor_override
  const Value a = widened(call.value(0));
  const Pooling pool = pooling(call, 1, a, dims, call.flag(4), {1});
  const Value sums = reduce_window(Combiner::Add, a, 0, pool.window, pool.result);
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

/// Every element of the input gets the sum over the windows that contain it.
Value windows_to_input(Value gradient, const Value& a, const Pooling& pool) {
  Window reach = pool.window;
  for (int64_t dim = pool.first; dim < rank(a); ++dim) {
    gradient = spread(gradient, pool.window.stride[dim], dim);
    reach.stride[dim] = 1;
    reach.low[dim] = reach.size[dim] - 1 - pool.window.low[dim];
    reach.high[dim] = a->shape[dim] + pool.window.low[dim] - gradient->shape[dim];
  }
  return reduce_window(Combiner::Add, gradient, 0, reach, a->shape);
}

template <size_t dims>
Values average_pool_gradient(const AtenCall& call) {  // gradient self kernel stride padding ceil_mode include divisor
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
  const Value inside = both(compare(Comparison::GE, column, begin), compare(Comparison::LT, column, end));
  return convert(inside, dtype) / convert(end - begin, dtype);
}

template <int64_t dims>
Values adaptive_average_pool(const AtenCall& call) {  // self output_size
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
Values adaptive_average_pool_gradient(const AtenCall& call) {  // gradient self
  Value gradient = widened(call.value(0));
  for (int64_t dim = rank(gradient) - dims; dim < rank(gradient); ++dim) {
    const int64_t results = gradient->shape[dim], length = call.tensor(1).size(dim);
    if (results == length) continue;
    gradient = apply_along(gradient, transpose(averaging_matrix(gradient->dtype, results, length), {1, 0}), dim);
  }
  return {convert(gradient, dtype_of(call, 0))};
}

const Lowering kPools[] = {
    {"max_pool2d_with_indices", max_pool<2>, is_floating},
    {"max_pool2d_with_indices_backward", max_pool_gradient<2>, is_floating},
    {"max_pool3d_with_indices", max_pool<3>, is_floating},
    {"max_pool3d_with_indices_backward", max_pool_gradient<3>, is_floating},
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

Lowerings pool_lowerings() { return kPools; }

}  // namespace lockstep::xla
