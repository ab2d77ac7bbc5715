#include "lockstep/xla/graph/text/regions.h"

#include <c10/util/StringUtil.h>

#include "lockstep/xla/graph/text/types.h"

namespace lockstep::xla {
namespace {

std::string compare_line(const char* result, const char* direction, const char* x, const char* y, Dtype dtype) {
  const std::string type = scalar_type(dtype);
  return c10::str("  ", result, " = stablehlo.compare ", direction, ", ", x, ", ", y, ", ", comparison(dtype), " : (",
                  type, ", ", type, ") -> tensor<i1>\n");
}

std::string logic_line(const char* result, const char* kind, const char* x, const char* y) {
  return c10::str("  ", result, " = stablehlo.", kind, " ", x, ", ", y, " : tensor<i1>\n");
}

/// Lines that set `result` to whether x is greater than y, where NaN is the greatest of all.
std::string greater_lines(const std::string& result, const char* x, const char* y, Dtype dtype) {
  if (!is_float(dtype)) return compare_line(result.c_str(), "GT", x, y, dtype);
  const std::string above = result + "_above", x_nan = result + "_nan", y_number = result + "_number",
                    only_x = result + "_only";
  return compare_line(above.c_str(), "GT", x, y, dtype) + compare_line(x_nan.c_str(), "NE", x, x, dtype) +
         compare_line(y_number.c_str(), "EQ", y, y, dtype) +
         logic_line(only_x.c_str(), "and", x_nan.c_str(), y_number.c_str()) +
         logic_line(result.c_str(), "or", above.c_str(), only_x.c_str());
}

}  // namespace

std::string combining_region(std::string_view kind, Dtype dtype) {
  const std::string type = scalar_type(dtype);
  const std::string begin = c10::str("{\n^bb0(%l: ", type, ", %r: ", type, "):\n");
  if (kind == "update") return c10::str(begin, "  stablehlo.return %r : ", type, "\n}");
  return c10::str(begin, "  %v = stablehlo.", kind, " %l, %r : ", type, "\n  stablehlo.return %v : ", type, "\n}");
}

std::string sorting_region(std::string_view order, Dtype dtype) {
  const std::string type = scalar_type(dtype);
  const bool descending = order == "descending";
  return c10::str("{\n^bb0(%l: ", type, ", %r: ", type, ", %li: tensor<i64>, %ri: tensor<i64>):\n",
                  greater_lines("%v", descending ? "%l" : "%r", descending ? "%r" : "%l", dtype),
                  "  stablehlo.return %v : tensor<i1>\n}");
}

std::string greater_pair_region(Dtype dtype) {
  const std::string type = scalar_type(dtype);
  return c10::str("{\n^bb0(%l: ", type, ", %li: tensor<i64>, %r: ", type, ", %ri: tensor<i64>):\n",
                  greater_lines("%rg", "%r", "%l", dtype), greater_lines("%lg", "%l", "%r", dtype),
                  "  %ln = stablehlo.not %lg : tensor<i1>\n", compare_line("%lower", "LT", "%ri", "%li", at::kLong),
                  logic_line("%tie", "and", "%ln", "%lower"), logic_line("%take", "or", "%rg", "%tie"),
                  "  %v = stablehlo.select %take, %r, %l : tensor<i1>, ", type,
                  "\n  %vi = stablehlo.select %take, %ri, %li : tensor<i1>, tensor<i64>\n  stablehlo.return %v, %vi : ",
                  type, ", tensor<i64>\n}");
}

std::string keeping_region(Dtype dtype) {
  const std::string type = scalar_type(dtype);
  return c10::str("{\n^bb0(%l: ", type, ", %r: ", type, "):\n", greater_lines("%g", "%r", "%l", dtype),
                  "  %v = stablehlo.not %g : tensor<i1>\n  stablehlo.return %v : tensor<i1>\n}");
}

const char* comparison(Dtype dtype) {
  if (is_float(dtype)) return "FLOAT";
  return dtype == at::kBool || dtype == at::kByte ? "UNSIGNED" : "SIGNED";
}

}  // namespace lockstep::xla
