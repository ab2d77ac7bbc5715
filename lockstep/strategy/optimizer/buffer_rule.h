#pragma once

#include <ostream>

#include "lockstep/api.h"

namespace lockstep {

/// How the buffers of a module are brought together, where replicas have written them.
enum class BufferRule {
  /// All replicas get the mean. The default of floating point buffers, such as the statistics of batch normalization.
  Mean,
  /// All replicas get the value they had together before, plus the changes of all: for counts of rows.
  Sum,
  /// All replicas get the value of the first one. The default of integer, bool and complex buffers, such as
  /// `num_batches_tracked`.
  First,
  /// Each replica keeps its own value: for a hidden state, or a queue of examples. `save` writes that of the first one.
  Own,
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, BufferRule rule);

}  // namespace lockstep
