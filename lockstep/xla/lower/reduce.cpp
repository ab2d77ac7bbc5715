#include <cmath>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

std::vector<int64_t> dims_at(const AtenCall& call, int i, const Value& a) {
  return wrap_dims(call.integers(i), rank(a));
}

Dtype given_dtype(const AtenCall& call, int i, Dtype otherwise) {
  return call.is_none(i) ? otherwise : call.argument(i).toScalarType();
}
/// Sums and products of integers are int64.
Dtype accumulated(Dtype dtype) { return is_float(dtype) ? dtype : at::kLong; }

enum class Fold { Sum, Mean, Product };

struct FoldPlan {
  Fold fold;
  /// Positions of the arguments; -1 where the function has none.
  int dims, keep_dims, dtype;
};

template <FoldPlan plan>
Values folded(const AtenCall& call) {
  const Dtype dtype = given_dtype(call, plan.dtype, accumulated(dtype_of(call, 0)));
  const Value a = call.value(0, compute_dtype(dtype));
  std::vector<int64_t> dims = all_dims(a);
  if constexpr (plan.dims >= 0) {
    if (call.argument(plan.dims).isInt()) {
      dims = wrap_dims({call.integer(plan.dims)}, rank(a));
    } else {
      dims = dims_at(call, plan.dims, a);
    }
  }
  bool keep_dims = false;
  if constexpr (plan.keep_dims >= 0) keep_dims = call.flag(plan.keep_dims);
  Value result = reduce(plan.fold == Fold::Product ? Combiner::Multiply : Combiner::Add, a, dims, keep_dims);
  if (plan.fold == Fold::Mean) result = result / product(a->shape, dims);
  return {convert(result, dtype)};
}

Combiner extreme_combiner(const Value& a, bool greatest) {
  if (a->dtype == at::kBool) return greatest ? Combiner::Or : Combiner::And;
  return greatest ? Combiner::Maximum : Combiner::Minimum;
}
Value extreme(const Value& a, bool greatest, Ints dims, bool keep_dims) {
  return reduce(extreme_combiner(a, greatest), a, dims, keep_dims);
}

/// The index of the first maximum or minimum along `dim`, or of the first NaN if there is one.
Value extreme_index(const Value& a, bool greatest, int64_t dim, bool keep_dims) {
  Value found = compare(Comparison::EQ, a, extreme(a, greatest, {dim}, true));
  if (is_float(a->dtype)) found = either(found, is_nan(a));
  const Value position = iota(at::kLong, a->shape, dim);
  return reduce(Combiner::Minimum, select(found, position, static_cast<double>(a->shape[dim])), {dim}, keep_dims);
}

template <bool greatest>
Values extreme_of_all(const AtenCall& call) {
  const Value a = call.value(0);
  return {extreme(a, greatest, all_dims(a), false)};
}
template <bool greatest>
Values extreme_of_dims(const AtenCall& call) {
  const Value a = call.value(0);
  return {extreme(a, greatest, dims_at(call, 1, a), call.flag(2))};
}
template <bool greatest>
Values extreme_with_index(const AtenCall& call) {
  const Value a = call.value(0);
  if (rank(a) == 0) return {a, fill_integer(0, at::kLong, {})};
  const int64_t dim = wrap_dim(call.integer(1), rank(a));
  return {extreme(a, greatest, {dim}, call.flag(2)), extreme_index(a, greatest, dim, call.flag(2))};
}
template <bool greatest>
Values index_of_extreme(const AtenCall& call) {
  const Value a = call.value(0);
  if (rank(a) == 0) return {fill_integer(0, at::kLong, {})};
  if (!call.is_none(1)) return {extreme_index(a, greatest, wrap_dim(call.integer(1), rank(a)), call.flag(2))};
  const Value index = extreme_index(reshape(a, {a->numel()}), greatest, 0, false);
  return {call.flag(2) ? reshape(index, Shape(a->shape.size(), 1)) : index};
}
Values both_extremes(const AtenCall& call) {
  const Value a = call.value(0);
  std::vector<int64_t> dims = all_dims(a);
  if (!call.is_none(1)) dims = wrap_dims({call.integer(1)}, rank(a));
  Values result;
  for (bool greatest : {false, true}) result.push_back(extreme(a, greatest, dims, call.flag(2)));
  if (call.is_none(1) && call.flag(2)) {
    for (Value& value : result) value = reshape(value, Shape(a->shape.size(), 1));
  }
  return result;
}

/// Bytes stay bytes, everything else becomes bool.
Values quantified(const AtenCall& call, Combiner combiner, Ints dims, bool keep_dims) {
  const Dtype dtype = dtype_of(call, 0);
  return {convert(reduce(combiner, call.value(0, at::kBool), dims, keep_dims), dtype == at::kByte ? dtype : at::kBool)};
}
template <bool all>
Values quantified_all(const AtenCall& call) {
  return quantified(call, all ? Combiner::And : Combiner::Or, all_dims(call.value(0)), false);
}
template <bool all>
Values quantified_dims(const AtenCall& call) {
  const int64_t rank = call.tensor(0).dim();
  const std::vector<int64_t> dims = call.argument(1).isInt() ? std::vector<int64_t>{call.integer(1)} : call.integers(1);
  return quantified(call, all ? Combiner::And : Combiner::Or, wrap_dims(dims, rank), call.flag(2));
}

struct Moments {
  Value mean, variance;
};
/// In the compute dtype.
Moments moments(const AtenCall& call) {  // self dim correction keepdim
  const Value a = widened(call.value(0));
  const std::vector<int64_t> dims = dims_at(call, 1, a);
  const double count = static_cast<double>(product(a->shape, dims));
  const double correction = call.is_none(2) ? 1 : call.number(2);
  const Value mean = sum(a, dims, true) / count;
  const Value squares = sum(square(a - mean), dims, call.flag(3));
  return {reshape(mean, squares->shape), squares / std::max(count - correction, 0.0)};
}

Value vector_norm(const Value& a, double p, Ints dims, bool keep_dims) {
  if (p == 2) return sqrt(sum(square(a), dims, keep_dims));
  const Value size = abs(a);
  if (p == 1) return sum(size, dims, keep_dims);
  if (p == 0) return sum(convert(compare(Comparison::NE, a, 0), a->dtype), dims, keep_dims);
  if (std::isinf(p)) return extreme(size, p > 0, dims, keep_dims);
  return power(sum(power(size, number_like(p, a)), dims, keep_dims), number_like(1 / p, a));
}
/// Position of the arguments; -1 where the function has none.
struct NormPlan {
  int dims = -1, keep_dims = -1, dtype = -1;
};
template <NormPlan plan>
Values norm(const AtenCall& call) {
  Dtype dtype = floating(dtype_of(call, 0));
  if constexpr (plan.dtype >= 0) dtype = given_dtype(call, plan.dtype, dtype);
  const Value a = call.value(0, compute_dtype(dtype));
  std::vector<int64_t> dims = all_dims(a);
  if constexpr (plan.dims >= 0) dims = dims_at(call, plan.dims, a);
  bool keep_dims = false;
  if constexpr (plan.keep_dims >= 0) keep_dims = call.flag(plan.keep_dims);
  return {convert(vector_norm(a, call.is_none(1) ? 2 : call.number(1), dims, keep_dims), dtype)};
}

/// Running sums or products: a window that ends at each element and reaches back over the whole row.
template <bool multiply>
Values scan(const AtenCall& call) {  // self dim dtype
  const Dtype dtype = given_dtype(call, 2, accumulated(dtype_of(call, 0)));
  const Value a = call.value(0, compute_dtype(dtype));
  if (rank(a) == 0 || a->numel() == 0) return {convert(a, dtype)};
  const int64_t dim = wrap_dim(call.integer(1), rank(a));
  const std::vector<int64_t> ones(a->shape.size(), 1), zeros(a->shape.size(), 0);
  Window window{ones, ones, zeros, zeros, {}};
  window.size[dim] = a->shape[dim];
  window.low[dim] = a->shape[dim] - 1;
  return {convert(reduce_window(multiply ? Combiner::Multiply : Combiner::Add, a, multiply ? 1 : 0, window, a->shape),
                  dtype)};
}

Values count_nonzero(const AtenCall& call) {
  const Value a = call.value(0);
  return {sum(convert(compare(Comparison::NE, a, 0), at::kLong), dims_at(call, 1, a))};
}

Values sum_of_numbers(const AtenCall& call) {  // nansum: self dim keepdim dtype
  const Dtype dtype = given_dtype(call, 3, accumulated(dtype_of(call, 0)));
  const Value a = call.value(0, compute_dtype(dtype));
  const Value counted = is_float(a->dtype) ? select(is_nan(a), 0, a) : a;
  return {convert(sum(counted, dims_at(call, 1, a), call.flag(2)), dtype)};
}

Values trace(const AtenCall& call) {
  const Value a = call.value(0, accumulated(dtype_of(call, 0)));
  const Value diagonal = compare(Comparison::EQ, iota(at::kLong, a->shape, 0), iota(at::kLong, a->shape, 1));
  return {sum(select(diagonal, a, 0), {0, 1})};
}

const Lowering kReductions[] = {
    {"sum", folded<FoldPlan{Fold::Sum, -1, -1, 1}>},
    {"sum.dim_IntList", folded<FoldPlan{Fold::Sum, 1, 2, 3}>},
    {"mean", folded<FoldPlan{Fold::Mean, -1, -1, 1}>},
    {"mean.dim", folded<FoldPlan{Fold::Mean, 1, 2, 3}>},
    {"prod", folded<FoldPlan{Fold::Product, -1, -1, 1}>},
    {"prod.dim_int", folded<FoldPlan{Fold::Product, 1, 2, 3}>},
    {"nansum", sum_of_numbers},
    {"count_nonzero.dim_IntList", count_nonzero},
    {"trace", trace},
    {"amax", extreme_of_dims<true>},
    {"amin", extreme_of_dims<false>},
    {"max", extreme_of_all<true>},
    {"min", extreme_of_all<false>},
    {"max.dim", extreme_with_index<true>},
    {"min.dim", extreme_with_index<false>},
    {"aminmax", both_extremes},
    {"argmax", index_of_extreme<true>},
    {"argmin", index_of_extreme<false>},
    {"any", quantified_all<false>},
    {"any.dim", quantified_dims<false>},
    {"any.dims", quantified_dims<false>},
    {"all", quantified_all<true>},
    {"all.dim", quantified_dims<true>},
    {"all.dims", quantified_dims<true>},
    {"var.correction",
     [](const AtenCall& call) -> Values { return {convert(moments(call).variance, dtype_of(call, 0))}; }},
    {"std.correction",
     [](const AtenCall& call) -> Values { return {convert(sqrt(moments(call).variance), dtype_of(call, 0))}; }},
    {"var_mean.correction",
     [](const AtenCall& call) -> Values {
       const auto [mean, variance] = moments(call);
       return {convert(variance, dtype_of(call, 0)), convert(mean, dtype_of(call, 0))};
     }},
    {"std_mean.correction",
     [](const AtenCall& call) -> Values {
       const auto [mean, variance] = moments(call);
       return {convert(sqrt(variance), dtype_of(call, 0)), convert(mean, dtype_of(call, 0))};
     }},
    {"norm.Scalar", norm<NormPlan{}>},
    {"norm.ScalarOpt_dtype", norm<NormPlan{.dtype = 2}>},
    {"norm.ScalarOpt_dim", norm<NormPlan{.dims = 2, .keep_dims = 3}>},
    {"norm.ScalarOpt_dim_dtype", norm<NormPlan{.dims = 2, .keep_dims = 3, .dtype = 4}>},
    {"linalg_vector_norm", norm<NormPlan{.dims = 2, .keep_dims = 3, .dtype = 4}>},
    {"cumsum", scan<false>},
    {"cumprod", scan<true>},
};

}  // namespace

Lowerings reduce_lowerings() { return kReductions; }

}  // namespace lockstep::xla
