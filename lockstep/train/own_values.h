#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/group.h"
#include "lockstep/train/memory_snapshots.h"

/// Internal: each worker restores its own snapshot in memory. Values that may differ between workers are made those of
/// the first worker, as they are in a checkpoint on disk.
namespace lockstep::detail {

/// Returns a hash of each tensor in `opened.own`, in the order of the names. DataError where one cannot be read.
LOCKSTEP_API std::vector<uint64_t> hashes_of_own(const OpenedState& opened);

/// Replaces what `opened.own` names by the first worker's numbers, texts and tensors. Only tensors that differ are
/// sent. All workers call it.
LOCKSTEP_API void take_first_workers(const comm::Group& workers, OpenedState& opened,
                                     const std::vector<uint64_t>& hashes);

}  // namespace lockstep::detail
