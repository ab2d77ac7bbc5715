#include <cmath>

#include "lockstep/xla/graph/builders/make_node.h"

namespace lockstep::xla {

Value random_bits(Value seed, Dtype dtype, Ints shape) {
  LOCKSTEP_CHECK_TRACED(seed->dtype == at::kLong && seed->shape.empty(), "a seed is one int64: ", seed->dtype, " ",
                        Ints(seed->shape));
  LOCKSTEP_CHECK_TRACED(dtype == at::kInt || dtype == at::kLong, "random bits are of dtype int32 or int64: ", dtype);
  return make_node(Op::RandomBits, dtype, shape, seed);
}

Value random_uniform(Value seed, Dtype dtype, Ints shape) {
  LOCKSTEP_CHECK_TRACED(is_float(dtype), "uniform numbers are of a floating dtype: ", dtype);
  const bool is_double = dtype == at::kDouble;
  const int bits = is_double ? 64 : 32, used = is_double ? 53 : 24;
  const Value all = random_bits(std::move(seed), is_double ? at::kLong : at::kInt, shape);
  const Value top = binary("shift_right_logical", all, integer(bits - used, all->dtype));
  const Value uniform = times(convert(top, is_double ? at::kDouble : at::kFloat), std::ldexp(1.0, -used));
  if (is_double || dtype == at::kFloat) return uniform;
  // Narrow dtypes round what is close to 1 up to 1, which is not in the range.
  const double below_one = 1 - std::ldexp(1.0, dtype == at::kHalf ? -11 : -8);
  return binary("minimum", convert(uniform, dtype), number(below_one, dtype));
}

}  // namespace lockstep::xla
