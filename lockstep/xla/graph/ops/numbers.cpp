#include <cmath>
#include <limits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

/// Rounds to the dtype, so that a number is the same as a constant and as an argument.
double rounded(double value, Dtype dtype) {
  switch (dtype) {
    case at::kFloat:
      return static_cast<float>(value);
    case at::kHalf:
      return c10::Half(static_cast<float>(value));
    case at::kBFloat16:
      return c10::BFloat16(static_cast<float>(value));
    default:
      return value;
  }
}

/// Wraps around, as LibTorch's conversions do.
int64_t rounded(int64_t value, Dtype dtype) {
  switch (dtype) {
    case at::kInt:
      return static_cast<int32_t>(value);
    case at::kShort:
      return static_cast<int16_t>(value);
    case at::kChar:
      return static_cast<int8_t>(value);
    case at::kByte:
      return static_cast<uint8_t>(value);
    case at::kBool:
      return value != 0;
    default:
      return value;
  }
}

/// Rounds towards zero and clamps to the range of int64.
int64_t truncated(double value) {
  constexpr double kBeyond = 9223372036854775808.0;
  if (std::isnan(value)) return 0;
  if (value >= kBeyond) return std::numeric_limits<int64_t>::max();
  if (value < -kBeyond) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

}  // namespace

Value argument(std::unique_ptr<ArgumentData> data, Dtype dtype, Ints shape) {
  Value node = make_node(Op::Argument, dtype, shape, {});
  node->data = std::move(data);
  return node;
}

Value number(double value, Dtype dtype) {
  if (dtype == at::kBool) return integer(value != 0, dtype);
  if (!is_float(dtype)) return integer(truncated(value), dtype);
  Value node = make_node(Op::Number, dtype, {}, {});
  node->number = rounded(value, dtype);
  return node;
}

Value integer(int64_t value, Dtype dtype, bool always_argument) {
  Value node = make_node(Op::Number, dtype, {}, {});
  if (is_float(dtype)) {
    node->number = rounded(static_cast<double>(value), dtype);
  } else {
    node->integer = rounded(value, dtype);
  }
  node->always_argument = always_argument;
  return node;
}

Value number_like(double value, const Value& other) { return number(value, other->dtype); }
Value fill(double value, Dtype dtype, Ints shape) { return broadcast(number(value, dtype), shape); }
Value fill_integer(int64_t value, Dtype dtype, Ints shape) { return broadcast(integer(value, dtype), shape); }

Value iota(Dtype dtype, Ints shape, int64_t dim) {
  Value node = make_node(Op::Iota, dtype, shape, {});
  check_dim(node, dim);
  append(*node, dim);
  return node;
}

void write_iota(Writer& w, const Node& node) {
  w.define(node, "iota dim = ", node.attributes[0], " : ", tensor_type(node));
}

bool is_number(const Value& value, double number) {
  if (value->op != Op::Number || value->always_argument) return false;
  if (is_float(value->dtype)) return value->number == number;
  return value->integer == truncated(number) && static_cast<double>(value->integer) == number;
}

}  // namespace lockstep::xla
