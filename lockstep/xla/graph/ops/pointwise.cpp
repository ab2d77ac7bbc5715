#include "lockstep/xla/graph/mlir/regions.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

void check_same_dtype(const Value& a, const Value& b) {
  LOCKSTEP_CHECK_TRACED(a->dtype == b->dtype, "operands are of one dtype: ", a->dtype, " and ", b->dtype);
}

template <typename Kind>
Value make_broadcast(Op op, Kind kind, Dtype dtype, Value a, Value b) {
  check_same_dtype(a, b);
  if (a->shape != b->shape) {
    const Shape shape = common_shape(a->shape, b->shape);
    a = broadcast(std::move(a), shape);
    b = broadcast(std::move(b), shape);
  }
  const Shape shape = a->shape;
  return make_node(op, kind, dtype, shape, {std::move(a), std::move(b)});
}

}  // namespace

Value unary(UnaryOp op, Value a) {
  const Dtype dtype = op == UnaryOp::IsFinite ? at::kBool : a->dtype;
  return make_node(Op::Unary, op, dtype, a->shape, a);
}

void write_unary(Writer& w, const Node& node) {
  const auto op = node.kind_as<UnaryOp>();
  const char* name = mlir_name(op);
  const std::string from = operand_type(node, 0), to = tensor_type(node);
  if (op == UnaryOp::IsFinite) {
    w.define(node, name, " ", w.operand(node, 0), signature(node));
  } else if (is_chlo(op)) {
    w.put(w.own_name(node), " = chlo.", name, " ", w.operand(node, 0), " : ", from, " -> ", to, "\n");
  } else {
    w.define(node, name, " ", w.operand(node, 0), " : ", to);
  }
}

Value binary(BinaryOp op, Value a, Value b) {
  const Dtype dtype = a->dtype;
  return make_broadcast(Op::Binary, op, dtype, std::move(a), std::move(b));
}

void write_binary(Writer& w, const Node& node) {
  w.define(node, mlir_name(node.kind_as<BinaryOp>()), " ", w.operand(node, 0), ", ", w.operand(node, 1), " : ",
           tensor_type(node));
}

Value compare(Comparison direction, Value a, Value b) {
  return make_broadcast(Op::Compare, direction, at::kBool, std::move(a), std::move(b));
}

void write_compare(Writer& w, const Node& node) {
  w.define(node, "compare ", mlir_name(node.kind_as<Comparison>()), ", ", w.operand(node, 0), ", ", w.operand(node, 1),
           ", ", compare_type(node.operands[0]->dtype), signature(node));
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

void write_select(Writer& w, const Node& node) {
  w.define(node, "select ", w.operand(node, 0), ", ", w.operand(node, 1), ", ", w.operand(node, 2), " : ",
           operand_type(node, 0), ", ", tensor_type(node));
}

Value convert(Value a, Dtype dtype) {
  if (a->dtype == dtype) return a;
  if (a->op == Op::Number && !a->always_argument) {
    return is_float(a->dtype) ? number(a->number, dtype) : integer(a->integer, dtype);
  }
  if (dtype == at::kBool) return compare(Comparison::NE, a, integer(0, a->dtype));
  return make_node(Op::Convert, dtype, a->shape, a);
}

void write_convert(Writer& w, const Node& node) { w.define(node, "convert ", w.operand(node, 0), signature(node)); }

// Not simplified by the values of numbers, which may differ in another replica or in the next step.

Value add(Value a, Value b) { return binary(BinaryOp::Add, std::move(a), std::move(b)); }
Value subtract(Value a, Value b) { return binary(BinaryOp::Subtract, std::move(a), std::move(b)); }
Value multiply(Value a, Value b) { return binary(BinaryOp::Multiply, std::move(a), std::move(b)); }
Value divide(Value a, Value b) { return binary(BinaryOp::Divide, std::move(a), std::move(b)); }

Value plus(Value a, double number) {
  Value other = number_like(number, a);
  return add(std::move(a), std::move(other));
}

Value times(Value a, double number) {
  Value other = number_like(number, a);
  return multiply(std::move(a), std::move(other));
}

}  // namespace lockstep::xla
