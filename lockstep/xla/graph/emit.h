#pragma once

#include <string>
#include <vector>

#include "lockstep/xla/graph/trace.h"

namespace lockstep::xla {

struct EmitOptions {
  int replicas = 1;
  int partitions = 1;
  /// For each number of the trace whether it is an argument of the program.
  std::vector<char> number_is_argument;
  /// Whether products of float32 are computed as such; otherwise the device may round operands (TF32, bfloat16).
  bool full_precision = true;
};

/// Whether replicas are an axis of the partitioner's mesh: one replica of `replicas` x `partitions` partitions, replica
/// by replica. XLA cannot exchange tiles among the partitions of one replica of several (its check of programs refuses
/// the all-to-all that its own partitioner makes); among the devices along one axis of a mesh it can.
inline bool joins_replicas(int replicas, int partitions) { return replicas > 1 && partitions > 1; }

/// The trace as a StableHLO module. Its parameters: the trace's arguments in order; then, where there are any, one
/// float64 vector and one int64 vector of all numbers that are arguments, each in the order of the trace. Layouts are
/// written for the Shardy partitioner.
LOCKSTEP_API std::string emit(const Trace& trace, const EmitOptions& options);

}  // namespace lockstep::xla
