#pragma once

#include "lockstep/xla/graph/ops/build.h"
#include "lockstep/xla/graph/origin.h"

/// Internal: what all builders use.
namespace lockstep::xla {

Value make_node(Op op, Dtype dtype, Ints shape, c10::ArrayRef<Value> operands);

/// Makes a node of one kind of `op`.
template <typename Kind>
Value make_node(Op op, Kind kind, Dtype dtype, Ints shape, c10::ArrayRef<Value> operands) {
  Value node = make_node(op, dtype, shape, operands);
  node->kind = static_cast<uint8_t>(kind);
  return node;
}

void append(Node& node, Ints attributes);

/// Checks that `dim` is a dimension of `a`.
void check_dim(const Value& a, int64_t dim);

/// Checks that a window has one entry for each of `dims` dimensions.
void check_entries(Ints entries, size_t dims, const char* what);

/// The shape that both broadcast to, by LibTorch's rules.
Shape common_shape(Ints a, Ints b);

/// The value without dimensions that all elements of `a` are copies of; null if `a` is not known to be such a value.
Value single_element(const Value& a);

}  // namespace lockstep::xla
