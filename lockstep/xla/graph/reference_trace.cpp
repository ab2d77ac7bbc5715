#include "lockstep/xla/graph/reference_trace.h"

#include "lockstep/base/error.h"

namespace lockstep::xla {

ReferenceTrace::ReferenceTrace(const Trace& trace)
    : changing(trace.nodes.size(), 0), number_changes(trace.numbers.size(), 0) {
  for (const Node* node : trace.nodes) {
    shapes.push_back(node->shape);
    attributes.push_back(node->attributes);
  }
  for (const Node* number : trace.numbers) numbers.push_back(number_bits(*number));
}

void ReferenceTrace::compare(const Trace& trace) {
  LOCKSTEP_ASSERT(trace.nodes.size() == shapes.size() && trace.numbers.size() == numbers.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t dim = 0; dim < shapes[i].size(); ++dim) {
      if (trace.nodes[i]->shape[dim] != shapes[i][dim]) changing[i] |= 1u << dim;
    }
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (number_bits(*trace.numbers[i]) != numbers[i]) number_changes[i] = 1;
  }
}

}  // namespace lockstep::xla
