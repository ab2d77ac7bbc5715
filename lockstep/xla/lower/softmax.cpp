#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Runs `formula` along a dimension; scalars have one of size 1.
template <typename Formula>
Value along(const Value& a, int64_t dim, Formula formula) {
  if (rank(a) > 0) return formula(a, wrap_dim(dim, rank(a)));
  return reshape(formula(reshape(a, {1}), int64_t{0}), {});
}

template <bool logarithm>
Values softmax(const AtenCall& call) {  // self dim half_to_float
  const Dtype dtype = call.flag(2) ? at::kFloat : dtype_of(call, 0);
  const Value result = along(widened(call.value(0)), call.integer(1), [](const Value& a, int64_t dim) {
    const Value shifted = a - reduce(Combiner::Maximum, a, {dim}, true);
    const Value exponentials = exp(shifted);
    const Value total = sum(exponentials, {dim}, true);
    return logarithm ? shifted - log(total) : exponentials / total;
  });
  return {convert(result, dtype)};
}

template <bool logarithm>
Values softmax_gradient(const AtenCall& call) {  // gradient output dim input_dtype
  const Value output = widened(call.value(1));
  Shape row = output->shape;
  if (row.empty()) row.push_back(1);
  const Value gradient = reshape(widened(call.value(0)), row);
  const Value result = along(output, call.integer(2), [&](const Value& a, int64_t dim) {
    if (logarithm) return gradient - exp(a) * sum(gradient, {dim}, true);
    const Value weighted = gradient * a;
    return weighted - a * sum(weighted, {dim}, true);
  });
  return {convert(result, call.argument(3).toScalarType())};
}

Values log_sum_exp(const AtenCall& call) {  // self dim keepdim
  const Dtype dtype = floating(dtype_of(call, 0));
  const Value a = call.value(0, compute_dtype(dtype));
  const std::vector<int64_t> dims = wrap_dims(call.integers(1), rank(a));
  const Value greatest = reduce(Combiner::Maximum, a, dims, true);
  const Value shift = select(compare(Comparison::EQ, abs(greatest), INFINITY), 0, greatest);
  const Value total = log(sum(exp(a - shift), dims, call.flag(2)));
  return {convert(total + reshape(shift, total->shape), dtype)};
}

const Lowering kSoftmax[] = {
    {"_softmax", softmax<false>},
    {"_log_softmax", softmax<true>},
    {"_softmax_backward_data", softmax_gradient<false>},
    {"_log_softmax_backward_data", softmax_gradient<true>},
    {"logsumexp", log_sum_exp},
};

}  // namespace

Lowerings softmax_lowerings() { return kSoftmax; }

}  // namespace lockstep::xla
