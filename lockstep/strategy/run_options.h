#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep {

/// Options of one `run`. Strategies on CPUs and GPUs ignore them; they are hints to compiling ones.
struct LOCKSTEP_API RunOptions {
  /// Whether a partial batch may be padded to the size of a full one.
  bool enable_dynamic_batch_size = true;
  /// Whether changing shapes are padded to powers of two, so that fewer programs are compiled.
  bool bucketizing_dynamic_shape = false;
  /// Options for the compiler, by name.
  std::map<std::string, std::string> xla_options;
};

/// Prints as TensorFlow prints its tuple of the same options.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const RunOptions& options);

/// What a strategy asks of the runtime that hosts it: `update_config_proto` fills it in.
struct LOCKSTEP_API RuntimeConfig {
  /// Whether variables of one session are invisible to others.
  bool isolate_session_state = false;
  /// The devices that this process may see; empty for all.
  std::vector<std::string> device_filters;
  /// The task that leads collectives between workers.
  std::string collective_group_leader;

  bool operator==(const RuntimeConfig&) const = default;
};

}  // namespace lockstep
