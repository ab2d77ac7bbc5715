#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/comm/engine_module.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/transport.h"

/// Gloo: bytes between the memories of hosts, over TCP, encrypted where certificates are given.
namespace lockstep::comm {

/// Connects all workers of the job with each other. `name` is unique in the job.
LOCKSTEP_API std::shared_ptr<Transport> make_gloo_transport(Job& job, const std::string& name, int num_lanes,
                                                            std::chrono::milliseconds timeout);

/// Whether Gloo can be used here.
EngineState gloo_state();

}  // namespace lockstep::comm
