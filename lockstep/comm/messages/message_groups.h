#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/transport/transport.h"
#include "lockstep/comm/worker_groups.h"

namespace lockstep::comm {

/// Makes a group over the workers of a job whose ranks exchange messages.
///
/// Ranks of one worker are threads and read each other's tensors; between workers, each rank exchanges messages with
/// the ranks of its local number on a lane of the transport. A reduction is divided into one part for each rank: parts
/// are exchanged, added in the order of the fixed tree over all ranks, and the sums exchanged. `device_transport`,
/// where it is given, carries tensors on devices; without it they go through the CPU. `collectives`, where they are
/// given, do what they can between all ranks at once; their name is that of the group's engine.
LOCKSTEP_API std::shared_ptr<WorkerGroups> make_message_groups(
    std::shared_ptr<Job> job, std::shared_ptr<Transport> transport, std::string name, int ranks_per_worker,
    std::chrono::milliseconds timeout, std::shared_ptr<Transport> device_transport = nullptr,
    std::shared_ptr<DeviceCollectives> collectives = nullptr);

}  // namespace lockstep::comm
