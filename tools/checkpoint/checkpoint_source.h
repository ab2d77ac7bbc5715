#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/state.h"

namespace lockstep::tools {

/// A checkpoint or a file of weights.
struct CheckpointSource {
  /// Of the checkpoint itself, also where its parent was given.
  std::string path;
  /// Whether `path` is the latest of several.
  bool latest = false;
  /// What a checkpoint says of itself.
  std::optional<detail::CheckpointInfo> info;
  State state;
};

/// Opens it. DataError where there is none, or where it is damaged.
CheckpointSource open_source(const std::string& path);

/// The folders of all checkpoints in a folder, or the folder itself where it is one. DataError where there is none.
std::vector<std::string> checkpoints_at(const std::string& path);

}  // namespace lockstep::tools
