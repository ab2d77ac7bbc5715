#include <string_view>

#include "lockstep/xla/graph/builders/make_node.h"

namespace lockstep::xla {
namespace {

void check_same_dtype(const Value& a, const Value& b) {
  LOCKSTEP_CHECK_TRACED(a->dtype == b->dtype, "operands are of one dtype: ", a->dtype, " and ", b->dtype);
}

Value broadcast_both(Op op, const char* kind, Dtype dtype, Value a, Value b) {
  check_same_dtype(a, b);
  if (a->shape != b->shape) {
    const Shape shape = common_shape(a->shape, b->shape);
    a = broadcast(std::move(a), shape);
    b = broadcast(std::move(b), shape);
  }
  const Shape shape = a->shape;
  return make_node(op, dtype, shape, {std::move(a), std::move(b)}, kind);
}

}  // namespace

Value unary(const char* kind, Value a) {
  const Dtype dtype = std::string_view(kind) == "is_finite" ? at::kBool : a->dtype;
  return make_node(Op::Unary, dtype, a->shape, a, kind);
}

Value binary(const char* kind, Value a, Value b) {
  const Dtype dtype = a->dtype;
  return broadcast_both(Op::Binary, kind, dtype, std::move(a), std::move(b));
}

Value compare(const char* direction, Value a, Value b) {
  return broadcast_both(Op::Compare, direction, at::kBool, std::move(a), std::move(b));
}

Value select(Value condition, Value if_true, Value if_false) {
  LOCKSTEP_CHECK_TRACED(condition->dtype == at::kBool, "a condition is of dtype bool: ", condition->dtype);
  check_same_dtype(if_true, if_false);
  const Shape shape = common_shape(common_shape(condition->shape, if_true->shape), if_false->shape);
  const Dtype dtype = if_true->dtype;
  return make_node(Op::Select, dtype, shape,
                   {broadcast(std::move(condition), shape), broadcast(std::move(if_true), shape),
                    broadcast(std::move(if_false), shape)});
}

Value convert(Value a, Dtype dtype) {
  if (a->dtype == dtype) return a;
  if (a->op == Op::Number && !a->always_argument) {
    return is_float(a->dtype) ? number(a->number, dtype) : integer(a->integer, dtype);
  }
  if (dtype == at::kBool) return compare("NE", a, integer(0, a->dtype));
  return make_node(Op::Convert, dtype, a->shape, a);
}

// Nothing is left out because of what a number is: it may be another one in another replica, or in the next step.

Value add(Value a, Value b) { return binary("add", std::move(a), std::move(b)); }
Value subtract(Value a, Value b) { return binary("subtract", std::move(a), std::move(b)); }
Value multiply(Value a, Value b) { return binary("multiply", std::move(a), std::move(b)); }
Value divide(Value a, Value b) { return binary("divide", std::move(a), std::move(b)); }

Value plus(Value a, double number) {
  Value other = number_like(number, a);
  return add(std::move(a), std::move(other));
}

Value times(Value a, double number) {
  Value other = number_like(number, a);
  return multiply(std::move(a), std::move(other));
}

}  // namespace lockstep::xla
