#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/comm/engine_module.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/transport.h"

/// MPI: bytes between the memories of hosts, over whatever network the MPI library knows.
namespace lockstep::comm {

/// Makes communicators for the workers of the job, which must be exactly the processes that mpirun has started.
/// Initialises MPI where the program has not. `name` is unique in the job.
LOCKSTEP_API std::shared_ptr<Transport> make_mpi_transport(Job& job, const std::string& name, int num_lanes,
                                                           std::chrono::milliseconds timeout);

/// Whether MPI can be used here.
EngineState mpi_state();

}  // namespace lockstep::comm
