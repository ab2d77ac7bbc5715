#include "lockstep/xla/graph/mlir/literal.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

template <typename Bits, typename Number>
std::string bits_literal(Number number) {
  const auto bits = std::bit_cast<Bits>(number);
  char text[24];
  std::snprintf(text, sizeof text, "0x%0*llX", static_cast<int>(2 * sizeof bits),
                static_cast<unsigned long long>(bits));
  return text;
}

struct Range {
  int64_t lowest, highest;
};

template <typename Integer>
constexpr Range range_of() {
  return {std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max()};
}

Range range(Dtype dtype) {
  switch (dtype) {
    case at::kBool:
      return {0, 1};
    case at::kByte:
      return range_of<uint8_t>();
    case at::kChar:
      return range_of<int8_t>();
    case at::kShort:
      return range_of<int16_t>();
    case at::kInt:
      return range_of<int32_t>();
    default:
      return range_of<int64_t>();
  }
}

int64_t clamped(double value, Range range) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(range.lowest)) return range.lowest;
  if (value >= static_cast<double>(range.highest)) return range.highest;
  return static_cast<int64_t>(value);
}

}  // namespace

std::string float_literal(double value, Dtype dtype) {
  switch (dtype) {
    case at::kDouble:
      return bits_literal<uint64_t>(value);
    case at::kFloat:
      return bits_literal<uint32_t>(static_cast<float>(value));
    case at::kHalf:
      return bits_literal<uint16_t>(c10::Half(static_cast<float>(value)));
    case at::kBFloat16:
      return bits_literal<uint16_t>(c10::BFloat16(static_cast<float>(value)));
    default:
      LOCKSTEP_ASSERT(false, "dtype=", dtype);
  }
}

std::string integer_literal(int64_t value, Dtype dtype) {
  if (dtype == at::kBool) return value != 0 ? "true" : "false";
  return std::to_string(value);
}

std::string number_literal(const Node& number) {
  return is_float(number.dtype) ? float_literal(number.number, number.dtype)
                                : integer_literal(number.integer, number.dtype);
}

std::string literal(double value, Dtype dtype) {
  return is_float(dtype) ? float_literal(value, dtype) : integer_literal(clamped(value, range(dtype)), dtype);
}

std::string neutral_literal(Combiner combiner, Dtype dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (combiner) {
    case Combiner::Add:
    case Combiner::Or:
      return literal(0, dtype);
    case Combiner::Multiply:
      return literal(1, dtype);
    case Combiner::And:
      return dtype == at::kBool ? "true" : dtype == at::kByte ? "255" : "-1";
    case Combiner::Maximum:
      return literal(-kInfinity, dtype);
    case Combiner::Minimum:
      return literal(kInfinity, dtype);
    case Combiner::Update:
      break;
  }
  LOCKSTEP_ASSERT(false, "no neutral element: combiner=", mlir_name(combiner));
}

}  // namespace lockstep::xla
