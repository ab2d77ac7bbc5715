#pragma once

#include <string>

#include "tests/golden/harness.h"

/// What TensorFlow decides by the identity of Python objects, for the rules of several topics.
namespace lockstep::golden {

/// Returns whether `out` has a number, text or truth value that TensorFlow returns bare: every replica had the very
/// same Python object.
bool has_bare_constant(const Json& out);

/// Returns `out` with each bare constant as one for each replica; `kind` is "per_replica" or "mirrored".
Json with_constants_for_each_replica(const Json& out, size_t num_replicas, const std::string& kind = "per_replica");

}  // namespace lockstep::golden
