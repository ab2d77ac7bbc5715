#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/checkpoint/checkpoint_source.h"
#include "tools/print_result.h"

namespace lockstep::tools {

struct ConvertOptions {
  /// Replaces the step.
  std::optional<int64_t> step = {};
  /// A part of a checkpoint has at most so many bytes of tensors, or one tensor: as much is in memory at a time.
  int64_t part_bytes = int64_t{1} << 30;
};

/// Writes it to one safetensors file where `to` ends with ".safetensors", else as a checkpoint into the folder `to`.
/// The step of a checkpoint is kept in the file and read back. Returns what was written. DataError where a checkpoint
/// of this step is there already.
Json convert(const CheckpointSource& source, const std::string& to, const ConvertOptions& options);

}  // namespace lockstep::tools
