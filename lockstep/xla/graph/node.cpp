#include "lockstep/xla/graph/node.h"

#include <utility>
#include <vector>

#include "lockstep/xla/graph/mlir/types.h"

namespace lockstep::xla {
namespace {

/// Operands that the calling thread has yet to release; null while it releases none.
thread_local std::vector<Value>* releasing = nullptr;

}  // namespace

Node::Node() = default;

// A queue, because recursion would be as deep as the longest chain of nodes.
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

std::string describe(const Node& node) {
  std::string text = op_text(node.op, node.kind) + " -> " + tensor_type(node.dtype, node.shape);
  if (*node.origin != '\0') text.append(" (traced from ").append(node.origin).append(")");
  return text;
}

size_t num_size_attributes(const Node& node) {
  switch (node.op) {
    case Op::Slice:
    case Op::UpdateSlice:
    case Op::Convolution:
    case Op::WindowMaxIndex:
    case Op::SelectAndScatter:
      return node.attributes.size();
    case Op::Pad:
    case Op::ReduceWindow:
      return node.attributes.size() - 1;  // The last one is the padding value or the initial value.
    case Op::Scan:
      return 1;  // The length.
    default:
      return 0;
  }
}

}  // namespace lockstep::xla
