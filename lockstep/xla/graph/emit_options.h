#pragma once

#include <vector>

namespace lockstep::xla {

struct EmitOptions {
  int replicas = 1;
  int partitions = 1;
  /// For each number of the trace whether it is an argument of the program.
  std::vector<char> number_is_argument;
  /// Whether products of float32 keep full precision; otherwise the device may round operands (TF32, bfloat16).
  bool full_precision = true;
};

/// Whether replicas are an axis of the device mesh: the program then has one replica of `replicas` x `partitions`
/// partitions, replica by replica. XLA cannot exchange tiles among the partitions of one replica out of several (its
/// verifier rejects the all-to-all that its own partitioner makes), but it can along one axis of a mesh.
inline bool joins_replicas(int replicas, int partitions) { return replicas > 1 && partitions > 1; }

}  // namespace lockstep::xla
