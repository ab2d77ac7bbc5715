#include <cmath>

#include <c10/core/DefaultDtype.h>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

Dtype dtype_at(const AtenCall& call, int i, Dtype otherwise) {
  return call.is_none(i) ? otherwise : call.argument(i).toScalarType();
}

bool is_integer(const AtenCall& call, int i) { return !call.argument(i).toScalar().isFloatingPoint(); }

int64_t steps_between(const AtenCall& call, int start, int end, int step) {
  const double from = start < 0 ? 0 : call.number(start), by = step < 0 ? 1 : call.number(step);
  return static_cast<int64_t>(std::ceil((call.number(end) - from) / by));
}

/// Positions of the arguments; -1 where the function has none.
template <int start, int end, int step, int dtype>
Values arange(const AtenCall& call) {
  bool integers = is_integer(call, end);
  if constexpr (start >= 0) integers = integers && is_integer(call, start);
  if constexpr (step >= 0) integers = integers && is_integer(call, step);
  const Dtype result = dtype_at(call, dtype, integers ? at::kLong : c10::get_default_dtype_as_scalartype());
  // LibTorch counts in float64.
  const Dtype counting = is_float(result) ? at::kDouble : at::kLong;
  Value values = iota(counting, {steps_between(call, start, end, step)}, 0);
  if constexpr (step >= 0) values = values * call.scalar(step, counting);
  if constexpr (start >= 0) values = values + call.scalar(start, counting);
  return {convert(values, result)};
}

/// From both ends, so that both are exact.
Values linspace(const AtenCall& call) {  // start end steps dtype
  const Dtype dtype = dtype_at(call, 3, c10::get_default_dtype_as_scalartype());
  const int64_t steps = call.integer(2);
  const Value start = call.scalar(0, at::kDouble), end = call.scalar(1, at::kDouble);
  if (steps <= 1) return {convert(broadcast(start, {steps}), dtype)};
  const Value step = (end - start) / (steps - 1), position = iota(at::kDouble, {steps}, 0);
  const Value from_end = end - step * (static_cast<double>(steps - 1) - position);
  return {convert(
      select(compare(Comparison::LT, position, static_cast<double>(steps / 2)), start + step * position, from_end),
      dtype)};
}

/// `columns` is the position of their number: the last of the sizes.
template <int columns>
Values eye(const AtenCall& call) {
  const Shape shape{call.integer(0), call.integer(columns)};
  const Dtype dtype = dtype_at(call, columns + 1, c10::get_default_dtype_as_scalartype());
  return {convert(compare(Comparison::EQ, iota(at::kLong, shape, 0), iota(at::kLong, shape, 1)), dtype)};
}

/// LibTorch's marker of zero gradients; here plain zeros, which the compiler folds.
Values zeros(const AtenCall& call) {  // size dtype
  return {fill(0, dtype_at(call, 1, c10::get_default_dtype_as_scalartype()), call.integers(0))};
}

const Lowering kFactories[] = {
    {"_efficientzerotensor", zeros},
    {"arange", arange<-1, 0, -1, 1>},
    {"arange.start", arange<0, 1, -1, 2>},
    {"arange.start_step", arange<0, 1, 2, 3>},
    {"linspace", linspace,
     [](const AtenCall& call) { return call.is_none(3) || is_float(call.argument(3).toScalarType()); }},
    {"eye", eye<0>},
    {"eye.m", eye<1>},
};

}  // namespace

Lowerings factory_lowerings() { return kFactories; }

}  // namespace lockstep::xla
