#include "lockstep/xla/graph/op.h"

#include <cstddef>
#include <iterator>

namespace lockstep::xla {
namespace {

constexpr const char* kOpNames[] = {
    "argument",
    "number",
    "iota",
    "unary",
    "binary",
    "compare",
    "select",
    "convert",
    "broadcast",
    "reshape",
    "transpose",
    "slice",
    "dynamic_slice",
    "pad",
    "concatenate",
    "update_slice",
    "dynamic_update_slice",
    "reverse",
    "reduce",
    "dot",
    "convolution",
    "reduce_window",
    "window_max_index",
    "select_and_scatter",
    "take",
    "scatter",
    "sort",
    "random_bits",
    "scan",
    "scan_output",
    "parameter",
    "all_reduce",
    "all_gather",
    "annotation",
};
static_assert(std::size(kOpNames) == static_cast<size_t>(Op::Annotation) + 1);

struct UnaryName {
  const char* name;
  bool is_chlo = false;
};
constexpr UnaryName kUnaryNames[] = {
    {"abs"},
    {"acos", true},
    {"acosh", true},
    {"asin", true},
    {"asinh", true},
    {"atan", true},
    {"atanh", true},
    {"ceil"},
    {"cosh", true},
    {"cosine"},
    {"digamma", true},
    {"erf", true},
    {"erf_inv", true},
    {"erfc", true},
    {"exponential"},
    {"exponential_minus_one"},
    {"floor"},
    {"is_finite"},
    {"lgamma", true},
    {"log"},
    {"log_plus_one"},
    {"logistic"},
    {"negate"},
    {"not"},
    {"round_nearest_even"},
    {"rsqrt"},
    {"sine"},
    {"sinh", true},
    {"sqrt"},
    {"tan"},
    {"tanh"},
};
static_assert(std::size(kUnaryNames) == static_cast<size_t>(UnaryOp::Tanh) + 1);

constexpr const char* kBinaryNames[] = {
    "add",
    "and",
    "atan2",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "or",
    "power",
    "remainder",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "subtract",
    "xor",
};
static_assert(std::size(kBinaryNames) == static_cast<size_t>(BinaryOp::Xor) + 1);

constexpr const char* kComparisonNames[] = {
    "EQ", "NE", "LT", "LE", "GT", "GE",
};
static_assert(std::size(kComparisonNames) == static_cast<size_t>(Comparison::GE) + 1);

constexpr const char* kCombinerNames[] = {
    "add", "multiply", "maximum", "minimum", "and", "or", "update",
};
static_assert(std::size(kCombinerNames) == static_cast<size_t>(Combiner::Update) + 1);

constexpr const char* kSortOrderNames[] = {
    "ascending",
    "descending",
};
static_assert(std::size(kSortOrderNames) == static_cast<size_t>(SortOrder::Descending) + 1);

constexpr const char* kConvolutionUseNames[] = {
    "forward",
    "input_gradient",
    "weight_gradient",
};
static_assert(std::size(kConvolutionUseNames) == static_cast<size_t>(ConvolutionUse::WeightGradient) + 1);

/// The name of a kind of `op`; null for operations that have none.
const char* kind_name(Op op, uint8_t kind) {
  switch (op) {
    case Op::Unary:
      return kUnaryNames[kind].name;
    case Op::Binary:
      return kBinaryNames[kind];
    case Op::Compare:
      return kComparisonNames[kind];
    case Op::Reduce:
    case Op::ReduceWindow:
    case Op::Scatter:
    case Op::AllReduce:
      return kCombinerNames[kind];
    case Op::Sort:
      return kSortOrderNames[kind];
    case Op::Convolution:
      return kConvolutionUseNames[kind];
    default:
      return nullptr;
  }
}

}  // namespace

const char* mlir_name(UnaryOp op) { return kUnaryNames[static_cast<size_t>(op)].name; }
const char* mlir_name(BinaryOp op) { return kBinaryNames[static_cast<size_t>(op)]; }
const char* mlir_name(Comparison direction) { return kComparisonNames[static_cast<size_t>(direction)]; }
const char* mlir_name(Combiner combiner) { return kCombinerNames[static_cast<size_t>(combiner)]; }

bool is_chlo(UnaryOp op) { return kUnaryNames[static_cast<size_t>(op)].is_chlo; }

std::string op_text(Op op, uint8_t kind) {
  std::string text = kOpNames[static_cast<size_t>(op)];
  if (const char* name = kind_name(op, kind)) text.append(" ").append(name);
  return text;
}

}  // namespace lockstep::xla
