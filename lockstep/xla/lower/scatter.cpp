#include <optional>
#include <string_view>

#include "lockstep/xla/lower/addresses.h"
#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/lower/value_checks.h"

namespace lockstep::xla {
namespace {

/// The combiner for LibTorch's `reduce` argument; nothing for one that is not covered.
std::optional<Combiner> combiner_named(std::string_view word) {
  if (word == "add" || word == "sum") return Combiner::Add;
  if (word == "multiply" || word == "prod") return Combiner::Multiply;
  if (word == "amax") return Combiner::Maximum;
  if (word == "amin") return Combiner::Minimum;
  return std::nullopt;
}

/// Combines `source` with the elements of `self` that `index` names along a dimension.
Values scattered(const AtenCall& call, Combiner combiner, Value source) {  // self dim index ...
  const Value self = at_least_one_dim(call.value(0)), index = at_least_one_dim(call.value(2));
  if (index->numel() == 0) return {call.value(0)};
  source =
      rank(source) == 0 ? broadcast(source, index->shape) : slice(source, Shape(source->shape.size(), 0), index->shape);
  const int64_t dim = wrap_dim(call.integer(1), rank(self));
  check_indices(call, index, 0, self->shape[dim]);
  const Value address = addresses_along(index, dim, self->shape);
  const Value flat = scatter(combiner, reshape(self, {self->numel()}), reshape(address, {address->numel()}),
                             reshape(source, {source->numel()}));
  return {reshape(flat, call.tensor(0).sizes())};
}

template <int reduce>
std::optional<Combiner> combiner_at(const AtenCall& call) {
  return combiner_named(call.argument(reduce).toStringRef());
}
template <int reduce>
bool covers_combiner(const AtenCall& call) {
  return combiner_at<reduce>(call).has_value();
}
bool covers_reduce(const AtenCall& call) { return combiner_at<4>(call).has_value() && call.flag(5); }

Values scatter_source(const AtenCall& call) {
  return scattered(call, Combiner::Update, call.value(3, dtype_of(call, 0)));
}
Values scatter_number(const AtenCall& call) {
  return scattered(call, Combiner::Update, call.scalar(3, dtype_of(call, 0)));
}
Values scatter_add(const AtenCall& call) { return scattered(call, Combiner::Add, call.value(3, dtype_of(call, 0))); }
Values scatter_reduce(const AtenCall& call) {
  return scattered(call, *combiner_at<4>(call), call.value(3, dtype_of(call, 0)));
}
Values scatter_reduce_number(const AtenCall& call) {
  return scattered(call, *combiner_at<4>(call), call.scalar(3, dtype_of(call, 0)));
}

/// Combines whole slices with those of `self` that a list names; `source` has one for each, or is one number. Indices
/// that count from the end are LibTorch's in index_fill only.
Value combined_slices(const AtenCall& call, Combiner combiner, Value source, bool from_both_ends = false) {
  const Value self = at_least_one_dim(call.value(0));  // self dim index ...
  Value index = at_least_one_dim(call.value(2));
  const int64_t dim = wrap_dim(call.integer(1), rank(self)), size = self->shape[dim];
  check_indices(call, index, from_both_ends ? -size : 0, size);
  if (from_both_ends) index = from_end(index, size);
  Shape shape = to_front(self, dim)->shape;
  shape[0] = index->numel();
  const Value updates = rank(source) == 0 ? broadcast(source, shape) : to_front(source, dim);
  return reshape(to_back(scatter(combiner, to_front(self, dim), index, updates), dim), call.tensor(0).sizes());
}

Values index_add(const AtenCall& call) {  // self dim index source alpha
  const Value source = call.value(3, dtype_of(call, 0));
  return {combined_slices(call, Combiner::Add, call.number(4) == 1 ? source : source * call.scalar(4, source->dtype))};
}
Values index_copy(const AtenCall& call) {
  return {combined_slices(call, Combiner::Update, call.value(3, dtype_of(call, 0)))};
}
Values index_fill(const AtenCall& call) {  // self dim index value
  const Dtype dtype = dtype_of(call, 0);
  return {combined_slices(call, Combiner::Update,
                          call.argument(3).isTensor() ? call.value(3, dtype) : call.scalar(3, dtype),
                          /*from_both_ends=*/true)};
}

/// Indices are addresses in the flat tensor.
Values put(const AtenCall& call) {  // self index source accumulate
  const Value self = call.value(0), given = call.value(1);
  check_indices(call, given, -self->numel(), self->numel());
  const Value index = from_end(given, self->numel());
  const Value source = reshape(call.value(2, self->dtype), index->shape);
  const Value flat =
      scatter(call.flag(3) ? Combiner::Add : Combiner::Update, reshape(self, {self->numel()}), index, source);
  return {reshape(flat, self->shape)};
}

/// The gradient of windows along a dimension, which may overlap.
Values unfold_gradient(const AtenCall& call) {  // gradient input_sizes dim size step
  const std::vector<int64_t> sizes = call.integers(1);
  const Value gradient = widened(call.value(0));
  const int64_t size = call.integer(3), step = call.integer(4);
  const int64_t dim = wrap_dim(call.integer(2), static_cast<int64_t>(sizes.size()));
  if (sizes.empty()) return {reshape(call.value(0), {})};
  // Positions within a window, the last dimension of the gradient, move behind the windows.
  const Value windows_first = to_front(gradient, dim);
  Shape order{0, rank(gradient) - 1};
  for (int64_t i = 1; i + 1 < rank(gradient); ++i) order.push_back(i);
  const Value updates = transpose(windows_first, order);
  const Shape windows{updates->shape[0], size};
  const Value position = iota(at::kLong, windows, 0) * step + iota(at::kLong, windows, 1);
  Shape shape{sizes[dim]};
  shape.append(updates->shape.begin() + 2, updates->shape.end());
  const Value total = scatter(Combiner::Add, fill(0, gradient->dtype, shape), position, updates);
  return {convert(to_back(total, dim), dtype_of(call, 0))};
}

const Lowering kScatters[] = {
    {"scatter.src", scatter_source},
    {"scatter.value", scatter_number},
    {"scatter.reduce", scatter_reduce, covers_combiner<4>},
    {"scatter.value_reduce", scatter_reduce_number, covers_combiner<4>},
    {"scatter_add", scatter_add},
    {"scatter_reduce.two", scatter_reduce, covers_reduce},
    {"put", put},
    {"index_add", index_add},
    {"index_copy", index_copy},
    {"index_fill.int_Scalar", index_fill},
    {"index_fill.int_Tensor", index_fill},
    {"unfold_backward", unfold_gradient},
};

}  // namespace

Lowerings scatter_lowerings() { return kScatters; }

}  // namespace lockstep::xla
