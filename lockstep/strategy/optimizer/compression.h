#pragma once

#include <cstdint>
#include <ostream>
#include <variant>

#include "lockstep/api.h"

namespace lockstep {

/// How gradients are made smaller on their way between workers that exchange messages.
///
/// A worker first sums the gradients of its own replicas, exactly. What it sends to other workers, and gets back, is
/// compressed. All replicas of all workers get the same bits. Dense gradients of float32 and float64 are compressed,
/// others are sent as they are. Workers that share memory, and replicas of one process, send nothing: there the options
/// have no effect, and one warning in the log says so.
///
/// *Error feedback*: what the compression of a step left out is added to the next gradient of the parameter. It is
/// state of the worker and belongs to no checkpoint: after a restart it begins with zeros.
namespace compression {

/// Gradients are sent as they are.
struct None {};

/// Sent as float16: the worker's sum is rounded, the sum over workers is computed in float and rounded once. Values
/// beyond 65504 become infinite.
struct Float16 {};

/// Sent as bfloat16: the range of float32, with 8 bits of precision.
struct BFloat16 {};

/// PowerSGD (Vogels et al., 2019): a gradient of at least two dimensions, as a matrix of size(0) rows, is sent as two
/// factors of `rank` columns. Others, and matrices that would not become smaller, are sent as they are.
struct PowerSGD {
  /// The number of columns of a factor.
  int64_t rank = 1;
  /// How many gradients of a parameter are sent as they are before the first one is compressed.
  int64_t start_step = 10;
  /// Whether what was not sent is added to the next gradient.
  bool error_feedback = true;
  /// Of the first factor; the same on all workers.
  uint64_t seed = 0;
};

/// The `fraction` of a gradient's elements with the largest absolute values, at least one, is sent with their indices.
struct TopK {
  /// The part of the elements that is sent.
  double fraction = 0.01;
  /// Whether what was not sent is added to the next gradient.
  bool error_feedback = true;
};

}  // namespace compression

using GradientCompression = std::variant<compression::None, compression::Float16, compression::BFloat16,
                                         compression::PowerSGD, compression::TopK>;

namespace compression {

/// Prints `PowerSGD(rank=2, start_step=10, error_feedback=true, seed=0)`.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const GradientCompression& compression);

}  // namespace compression

namespace detail {

/// Internal: throws ValueError for options out of range.
LOCKSTEP_API void validate(const GradientCompression& compression);

}  // namespace detail

}  // namespace lockstep
