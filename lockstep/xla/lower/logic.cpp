#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

Values compared(const AtenCall& call, Comparison direction) {
  const Dtype dtype = call.promoted(0, 1);
  const Value other = call.argument(1).isTensor() ? call.value(1, dtype) : call.scalar(1, dtype);
  return {compare(direction, call.value(0, dtype), other)};
}

template <auto formula>
Values of_bools(const AtenCall& call) {
  return {formula(call.value(0, at::kBool), call.value(1, at::kBool))};
}

/// Shifts by a negative amount, or by the number of bits or more, are undefined as in C++.
Value shift_left(Value a, Value b) { return binary(BinaryOp::ShiftLeft, std::move(a), std::move(b)); }

Value shift_right(Value a, Value b) {
  return binary(a->dtype == at::kByte ? BinaryOp::ShiftRightLogical : BinaryOp::ShiftRightArithmetic, a, std::move(b));
}

/// The bound at argument i, a tensor or a number, of the dtype of `a`; null if there is none.
Value bound(const AtenCall& call, int i, const Value& a) {
  if (call.is_none(i)) return {};
  if (!call.argument(i).isTensor()) return call.scalar(i, a->dtype);
  return call.has(i) ? call.value(i, a->dtype) : Value();
}

/// The dtype that a tensor and its bounds, tensors or numbers, have in common.
Dtype clamped_dtype(const AtenCall& call, at::ArrayRef<int> bounds) {
  Dtype dtype = dtype_of(call, 0);
  for (int i : bounds) {
    if (call.argument(i).isTensor() ? call.has(i) : !call.is_none(i)) {
      dtype = c10::promoteTypes(dtype, call.promoted(0, i));
    }
  }
  return dtype;
}

Values clamp(const AtenCall& call) {
  Value a = call.value(0, clamped_dtype(call, {1, 2}));
  if (const Value low = bound(call, 1, a)) a = maximum(a, low);
  if (const Value high = bound(call, 2, a)) a = minimum(a, high);
  return {a};
}

template <Value (*extreme)(Value, Value)>
Values clamp_one_side(const AtenCall& call) {
  const Value a = call.value(0, clamped_dtype(call, {1}));
  return {extreme(a, bound(call, 1, a))};
}

Values masked_fill(const AtenCall& call) {
  const Value a = call.value(0);
  const Value value = call.argument(2).isTensor() ? call.value(2, a->dtype) : call.scalar(2, a->dtype);
  return {select(call.value(1, at::kBool), value, a)};
}

Values where(const AtenCall& call) {
  const Dtype dtype = call.promoted(1, 2);
  return {select(call.value(0, at::kBool), call.value(1, dtype), call.value(2, dtype))};
}

#define LOCKSTEP_XLA_COMPARE(name, direction)                                                               \
  {name ".Tensor", [](const AtenCall& call) -> Values { return compared(call, Comparison::direction); }}, { \
    name ".Scalar", [](const AtenCall& call) -> Values { return compared(call, Comparison::direction); }    \
  }

const Lowering kLogic[] = {
    LOCKSTEP_XLA_COMPARE("eq", EQ),
    LOCKSTEP_XLA_COMPARE("ne", NE),
    LOCKSTEP_XLA_COMPARE("lt", LT),
    LOCKSTEP_XLA_COMPARE("le", LE),
    LOCKSTEP_XLA_COMPARE("gt", GT),
    LOCKSTEP_XLA_COMPARE("ge", GE),
    {"logical_and", of_bools<both>},
    {"logical_or", of_bools<either>},
    {"logical_xor", of_bools<[](Value a, Value b) { return compare(Comparison::NE, a, b); }>},
    {"logical_not", [](const AtenCall& call) -> Values { return {opposite(call.value(0, at::kBool))}; }},
    {"bitwise_not", [](const AtenCall& call) -> Values { return {opposite(call.value(0))}; }},
    {"bitwise_and.Tensor", any_binary<both>},
    {"bitwise_or.Tensor", any_binary<either>},
    {"bitwise_xor.Tensor", any_binary<[](Value a, Value b) { return binary(BinaryOp::Xor, a, b); }>},
    {"bitwise_left_shift.Tensor", any_binary<shift_left>},
    {"bitwise_right_shift.Tensor", any_binary<shift_right>},
    {"__lshift__.Tensor", any_binary<shift_left>},
    {"__rshift__.Tensor", any_binary<shift_right>},
    {"clamp", clamp},
    {"clamp.Tensor", clamp},
    {"clamp_min", clamp_one_side<maximum>},
    {"clamp_min.Tensor", clamp_one_side<maximum>},
    {"clamp_max", clamp_one_side<minimum>},
    {"clamp_max.Tensor", clamp_one_side<minimum>},
    {"masked_fill.Scalar", masked_fill},
    {"masked_fill.Tensor", masked_fill},
    {"where.self", where},
};

#undef LOCKSTEP_XLA_COMPARE

}  // namespace

Lowerings logic_lowerings() { return kLogic; }

}  // namespace lockstep::xla
