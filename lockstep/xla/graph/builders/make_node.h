#pragma once

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/build.h"

/// Inside: what all builders use.
namespace lockstep::xla {

/// The function of LibTorch that is traced, for the start of a message.
const char* traced_function();

/// Checks what the caller of a builder gave; the message starts with the function that is traced.
#define LOCKSTEP_CHECK_TRACED(condition, ...) \
  LOCKSTEP_CHECK_VALUE(condition, "[", ::lockstep::xla::traced_function(), "] ", __VA_ARGS__)

/// `kind` is a literal of any translation unit.
Value make_node(Op op, Dtype dtype, Ints shape, c10::ArrayRef<Value> operands, const char* kind = "");

void append(Node& node, Ints attributes);

/// Checks that `dim` is one of `a`.
void check_dim(const Value& a, int64_t dim);

/// The shape that both broadcast to, as LibTorch does it.
Shape common_shape(Ints a, Ints b);

/// The value of which all elements of `a` are copies, which has no dimensions; null if `a` is not known to be that.
Value single_element(const Value& a);

}  // namespace lockstep::xla
