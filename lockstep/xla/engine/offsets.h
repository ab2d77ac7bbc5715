#pragma once

#include <vector>

#include "lockstep/xla/engine/pending_work.h"

namespace lockstep::xla {

/// Makes the offsets of slices arguments of the program where they change: between runs of a step whose other
/// operations and sizes are equal, as with `x[i]`, or between replicas. The first change is a recompilation, which is
/// counted and logged; later values of the offset are not. Offsets that do not change stay constants.
void make_offsets_arguments(std::vector<PendingWork>& works);

/// Whether the same has been executed with other offsets.
bool is_known_with_offsets(const std::vector<PendingWork>& works);

}  // namespace lockstep::xla
