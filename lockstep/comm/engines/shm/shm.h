#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/shared/shared_rendezvous.h"
#include "lockstep/comm/worker_groups.h"

namespace lockstep::comm {

/// Makes a group over the workers of one machine. Tensors that were made under `SharedAllocation` are reduced where
/// they are, as between threads; others are copied into shared memory and back.
LOCKSTEP_API std::shared_ptr<WorkerGroups> make_shm_groups(std::shared_ptr<SharedRendezvous> rendezvous);

}  // namespace lockstep::comm
