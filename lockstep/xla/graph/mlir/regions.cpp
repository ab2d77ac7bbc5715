#include "lockstep/xla/graph/mlir/regions.h"

#include <c10/util/StringUtil.h>

#include "lockstep/xla/graph/mlir/types.h"

namespace lockstep::xla {
namespace {

std::string compare_line(const char* result, Comparison direction, const char* x, const char* y, Dtype dtype) {
  const std::string type = scalar_type(dtype);
  return c10::str("  ", result, " = stablehlo.compare ", mlir_name(direction), ", ", x, ", ", y, ", ",
                  compare_type(dtype), " : (", type, ", ", type, ") -> tensor<i1>\n");
}

std::string logic_line(const char* result, BinaryOp op, const char* x, const char* y) {
  return c10::str("  ", result, " = stablehlo.", mlir_name(op), " ", x, ", ", y, " : tensor<i1>\n");
}

/// Lines that set `result` to whether x > y, where NaN is greater than every number.
std::string greater_lines(const std::string& result, const char* x, const char* y, Dtype dtype) {
  if (!is_float(dtype)) return compare_line(result.c_str(), Comparison::GT, x, y, dtype);
  const std::string above = result + "_above", x_nan = result + "_nan", y_number = result + "_number",
                    only_x = result + "_only";
  return compare_line(above.c_str(), Comparison::GT, x, y, dtype) +
         compare_line(x_nan.c_str(), Comparison::NE, x, x, dtype) +
         compare_line(y_number.c_str(), Comparison::EQ, y, y, dtype) +
         logic_line(only_x.c_str(), BinaryOp::And, x_nan.c_str(), y_number.c_str()) +
         logic_line(result.c_str(), BinaryOp::Or, above.c_str(), only_x.c_str());
}

}  // namespace

std::string combining_region(Combiner combiner, Dtype dtype) {
  const std::string type = scalar_type(dtype);
  const std::string begin = c10::str("{\n^bb0(%l: ", type, ", %r: ", type, "):\n");
  if (combiner == Combiner::Update) return c10::str(begin, "  stablehlo.return %r : ", type, "\n}");
  return c10::str(begin, "  %v = stablehlo.", mlir_name(combiner), " %l, %r : ", type,
                  "\n  stablehlo.return %v : ", type, "\n}");
}

std::string sorting_region(SortOrder order, Dtype dtype) {
  const std::string type = scalar_type(dtype);
  const bool descending = order == SortOrder::Descending;
  return c10::str("{\n^bb0(%l: ", type, ", %r: ", type, ", %li: tensor<i64>, %ri: tensor<i64>):\n",
                  greater_lines("%v", descending ? "%l" : "%r", descending ? "%r" : "%l", dtype),
                  "  stablehlo.return %v : tensor<i1>\n}");
}

std::string greater_pair_region(Dtype dtype) {
  const std::string type = scalar_type(dtype);
  return c10::str(
      "{\n^bb0(%l: ", type, ", %li: tensor<i64>, %r: ", type, ", %ri: tensor<i64>):\n",
      greater_lines("%rg", "%r", "%l", dtype), greater_lines("%lg", "%l", "%r", dtype),
      "  %ln = stablehlo.not %lg : tensor<i1>\n", compare_line("%lower", Comparison::LT, "%ri", "%li", at::kLong),
      logic_line("%tie", BinaryOp::And, "%ln", "%lower"), logic_line("%take", BinaryOp::Or, "%rg", "%tie"),
      "  %v = stablehlo.select %take, %r, %l : tensor<i1>, ", type,
      "\n  %vi = stablehlo.select %take, %ri, %li : tensor<i1>, tensor<i64>\n  stablehlo.return %v, %vi : ", type,
      ", tensor<i64>\n}");
}

std::string selecting_region(Dtype dtype) {
  const std::string type = scalar_type(dtype);
  return c10::str("{\n^bb0(%l: ", type, ", %r: ", type, "):\n", greater_lines("%g", "%r", "%l", dtype),
                  "  %v = stablehlo.not %g : tensor<i1>\n  stablehlo.return %v : tensor<i1>\n}");
}

const char* compare_type(Dtype dtype) {
  if (is_float(dtype)) return "FLOAT";
  return dtype == at::kBool || dtype == at::kByte ? "UNSIGNED" : "SIGNED";
}

}  // namespace lockstep::xla
