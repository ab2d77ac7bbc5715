#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/checkpoint/checkpoint_source.h"
#include "tools/report.h"

namespace lockstep::tools {

/// Writes it to one safetensors file where `to` ends with ".safetensors", else as a checkpoint into the folder `to`.
/// The step of a checkpoint is kept in the file and read back; `step` replaces the step. Returns what was
/// written. DataError where a checkpoint of this step is there already.
Json convert(const CheckpointSource& source, const std::string& to, std::optional<int64_t> step);

}  // namespace lockstep::tools
