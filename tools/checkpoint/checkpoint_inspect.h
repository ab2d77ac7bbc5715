#pragma once

#include <ostream>
#include <string>

#include "tools/checkpoint/checkpoint_source.h"
#include "tools/print_result.h"

namespace lockstep::tools {

/// Everything but the values of tensors.
Json inspect_source(const CheckpointSource& source);
/// The same for people.
void print_source(const CheckpointSource& source, std::ostream& out);

/// Reads every byte: {"checkpoint", "step", "bytes", "sound"}, and "damage" where it is not sound.
Json verify_folder(const std::string& folder);

}  // namespace lockstep::tools
