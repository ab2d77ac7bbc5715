#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/memory_snapshots.h"

/// Internal: restoring a checkpoint on all workers at once.
namespace lockstep::detail {

/// A checkpoint that may be restored.
struct RestoreSource {
  int64_t step = 0;
  bool in_memory = false;
  /// For messages.
  std::string place;
  /// Returns its state. DataError where it is damaged.
  std::function<OpenedState()> open;
};

/// The checkpoint of this step in the folder.
LOCKSTEP_API RestoreSource source_on_disk(const std::string& folder, int64_t step);
/// Returns the checkpoints of the folder as the first worker sees them, and the snapshots in memory that all workers
/// have, the newest first. `memory_folder` may be empty. All workers call it.
LOCKSTEP_API std::vector<RestoreSource> restore_sources(const StrategyImpl& strategy, const std::string& folder,
                                                        const std::string& memory_folder);

/// Loads a checkpoint into all objects. All workers call it, and all return or throw: true if it was loaded; false,
/// with a text, where a worker found damage: objects may then have a part of the new values. Throws ValueError where
/// names or shapes do not fit, before anything is changed, and errors of objects that load themselves.
LOCKSTEP_API bool restore_from(const Checkpoint& checkpoint, const RestoreSource& source, std::string& damage);

/// The folders of a name like those of checkpoints that have no index.
LOCKSTEP_API std::vector<std::string> incomplete_checkpoints(const std::string& folder);

}  // namespace lockstep::detail
