#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// The sorted elements `begin` to `end` along a dimension.
Values sorted(const Value& a, int64_t dim, bool descending, int64_t begin, int64_t end) {
  const auto [values, indices] = sort(a, dim, descending);
  Shape from(a->shape.size(), 0), to = a->shape;
  from[dim] = begin;
  to[dim] = end;
  return {slice(values, from, to), slice(indices, from, to)};
}

/// `dim` and `descending` begin at position `at`.
template <int at>
Values sort_all(const AtenCall& call) {
  const Value a = call.value(0);
  if (rank(a) == 0) return {a, fill_integer(0, at::kLong, {})};
  const int64_t dim = wrap_dim(call.integer(at), rank(a));
  return sorted(a, dim, call.flag(at + 1), 0, a->shape[dim]);
}

Values top(const AtenCall& call) {  // self k dim largest sorted
  const Value a = call.value(0);
  if (rank(a) == 0) return {a, fill_integer(0, at::kLong, {})};
  return sorted(a, wrap_dim(call.integer(2), rank(a)), call.flag(3), 0, call.integer(1));
}

Values kth_value(const AtenCall& call) {  // self k dim keepdim
  const Value a = call.value(0);
  if (rank(a) == 0) return {a, fill_integer(0, at::kLong, {})};
  const int64_t dim = wrap_dim(call.integer(2), rank(a)), k = call.integer(1);
  Values result = sorted(a, dim, false, k - 1, k);
  if (call.flag(3)) return result;
  Shape shape = a->shape;
  shape.erase(shape.begin() + dim);
  for (Value& value : result) value = reshape(value, shape);
  return result;
}

const Lowering kSorts[] = {
    {"sort", sort_all<1>},
    {"sort.stable", sort_all<2>},
    {"topk", top},
    {"kthvalue", kth_value},
};

}  // namespace

Lowerings sort_lowerings() { return kSorts; }

}  // namespace lockstep::xla
