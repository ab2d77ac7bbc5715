#include <cmath>

#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {

Value random_bits(Value seed, Dtype dtype, Ints shape) {
  LOCKSTEP_CHECK_TRACED(seed->dtype == at::kLong && seed->shape.empty(), "a seed is one int64: ", seed->dtype, " ",
                        Ints(seed->shape));
  LOCKSTEP_CHECK_TRACED(dtype == at::kInt || dtype == at::kLong, "random bits are of dtype int32 or int64: ", dtype);
  return make_node(Op::RandomBits, dtype, shape, seed);
}

/// The state of the generator is two unsigned numbers: the seed and zero.
void write_random_bits(Writer& w, const Node& node) {
  const bool wide = node.dtype == at::kLong;
  const std::string bits = tensor_type(wide ? "ui64" : "ui32", node.shape);
  const std::string seed =
      w.step(node, "seed", "bitcast_convert ", w.operand(node, 0), " : (tensor<i64>) -> tensor<ui64>");
  const std::string state = w.step(node, "first", "reshape ", seed, " : (tensor<ui64>) -> tensor<1xui64>");
  const std::string zero = w.step(node, "zero", "constant dense<0> : tensor<1xui64>");
  const std::string both = w.step(node, "state", "concatenate ", state, ", ", zero,
                                  ", dim = 0 : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>");
  const std::string name = "%n" + std::to_string(node.index);
  w.put(name, "_next, ", name, "_bits = stablehlo.rng_bit_generator ", both,
        ", algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, ", bits, ")\n");
  w.define(node, "bitcast_convert ", name, "_bits : (", bits, ") -> ", tensor_type(node));
}

Value random_uniform(Value seed, Dtype dtype, Ints shape) {
  LOCKSTEP_CHECK_TRACED(is_float(dtype), "uniform numbers are of a floating dtype: ", dtype);
  const bool is_double = dtype == at::kDouble;
  const int bits = is_double ? 64 : 32, used = is_double ? 53 : 24;
  const Value all = random_bits(std::move(seed), is_double ? at::kLong : at::kInt, shape);
  const Value top = binary(BinaryOp::ShiftRightLogical, all, integer(bits - used, all->dtype));
  const Value uniform = times(convert(top, is_double ? at::kDouble : at::kFloat), std::ldexp(1.0, -used));
  if (is_double || dtype == at::kFloat) return uniform;
  // Narrow dtypes would round values close to 1 up to 1, which is out of range.
  const double below_one = 1 - std::ldexp(1.0, dtype == at::kHalf ? -11 : -8);
  return binary(BinaryOp::Minimum, convert(uniform, dtype), number(below_one, dtype));
}

}  // namespace lockstep::xla
