#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/engine_module.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/transport.h"

/// NCCL: bytes between the memories of GPUs.
namespace lockstep::comm {

/// Makes one communicator for each lane, with that lane's GPU. `name` is unique in the job.
LOCKSTEP_API std::shared_ptr<Transport> make_nccl_transport(Job& job, const std::string& name, int num_lanes,
                                                            const std::vector<int>& devices,
                                                            std::chrono::milliseconds timeout);

/// Whether NCCL can be used here. Asks CUDA for its devices: processes that fork later should not call it.
EngineState nccl_state();

}  // namespace lockstep::comm
