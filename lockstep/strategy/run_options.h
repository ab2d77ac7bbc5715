#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep {

/// Options of one `run` for TPUStrategy, which compiles a program for every combination of sizes. Other strategies
/// compile nothing, so that all sizes are equal to them and there is no compiler to give options to: there, none of
/// these has an effect.
struct LOCKSTEP_API RunOptions {
  /// Whether sizes may change from step to step. If a step has fewer rows than an earlier one, its arguments are padded
  /// to the earlier size and the rows that were added are masked wherever rows are combined, so that one program serves
  /// all such steps and results are those of the rows given. Where masks cannot give them (random numbers for each row,
  /// a sort of the rows, collectives of rows), the step is compiled for its own size. False: a step whose sizes differ
  /// from those of an earlier one is a ValueError, since only fixed sizes are allowed.
  bool enable_dynamic_batch_size = true;
  /// Whether sizes of arguments that change, in any dimension, are padded to powers of two in this way.
  bool bucketizing_dynamic_shape = false;
  /// Options for XLA's compiler by name, those of its DebugOptions: {{"xla_cpu_enable_fast_math", "true"}}. A name that
  /// the plugin does not know is an error of the run.
  std::map<std::string, std::string> xla_options{};
};

/// Prints as TensorFlow prints its tuple of the same options.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const RunOptions& options);

/// Settings that a strategy needs of the runtime that hosts it: `update_config_proto` fills them in.
struct LOCKSTEP_API RuntimeConfig {
  /// Whether variables of one session are invisible to others.
  bool isolate_session_state = false;
  /// The devices that this process may see; empty for all.
  std::vector<std::string> device_filters;
  /// The task that leads collectives between workers.
  std::string collective_group_leader;

  bool operator==(const RuntimeConfig&) const = default;
};

/// The replica that `distribute_values_from_function` makes a value for.
struct LOCKSTEP_API ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const ValueContext& context);

}  // namespace lockstep
