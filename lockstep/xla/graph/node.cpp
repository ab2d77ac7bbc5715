#include "lockstep/xla/graph/node.h"

#include <iterator>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/text/types.h"

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
    "pad",
    "concatenate",
    "update_slice",
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
    "all_reduce",
    "all_gather",
    "annotation",
};
static_assert(std::size(kOpNames) == static_cast<size_t>(Op::Annotation) + 1);

/// Values that the calling thread is about to let go; null while it releases none.
thread_local std::vector<Value>* releasing = nullptr;

}  // namespace

Node::Node() = default;

// A long chain of nodes would otherwise be released by recursion, as deep as the chain is long.
Node::~Node() {
  std::vector<Value> own_queue;
  const bool first = releasing == nullptr;
  if (first) releasing = &own_queue;
  for (Value& operand : operands) {
    if (operand.use_count() == 1) releasing->push_back(std::move(operand));
  }
  if (!first) return;
  while (!own_queue.empty()) {
    const Value last = std::move(own_queue.back());
    own_queue.pop_back();
  }
  releasing = nullptr;
}

int64_t Node::numel() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

const char*& current_origin() {
  thread_local const char* origin = nullptr;
  return origin;
}

std::string describe(const Node& node) {
  std::string text = kOpNames[static_cast<size_t>(node.op)];
  if (*node.kind != '\0') text.append(" ").append(node.kind);
  text.append(" -> ").append(tensor_type(node));
  if (*node.origin != '\0') text.append(" (traced from ").append(node.origin).append(")");
  return text;
}

bool is_float(Dtype dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

const char* mlir_type(Dtype dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kLong:
      return "i64";
    case at::kInt:
      return "i32";
    case at::kShort:
      return "i16";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "ui8";
    case at::kBool:
      return "i1";
    default:
      LOCKSTEP_CHECK_TYPE(false, "[", current_origin() != nullptr ? current_origin() : "xla",
                          "] XLA devices have no such dtype: dtype=", dtype, "; keep such tensors on the CPU");
  }
}

}  // namespace lockstep::xla
