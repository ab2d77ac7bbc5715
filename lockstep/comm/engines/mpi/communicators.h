#pragma once

#include <chrono>
#include <string>

#include <mpi.h>

#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// Initializes MPI unless the program has done so. MPI that was initialized here is finalized at exit, after this
/// process has left its jobs and when all processes have come to their exit. A process that has failed, or whose exit
/// status is other than 0, waits 5 seconds for them and then exits without.
/// c10::NotImplementedError where the library does not let several threads communicate.
void start_mpi();

/// Notes that collectives have failed: others may be gone, and do not take part in calls that wait for them.
void note_mpi_failure();

/// A call of MPI that takes long, for as long as it exists. MPI is not finalized beside it.
class MpiCall {
 public:
  MpiCall();
  ~MpiCall();
  MpiCall(const MpiCall&) = delete;
  MpiCall& operator=(const MpiCall&) = delete;
};

/// Returns a communicator in which each worker has its own number as its rank. CollectiveError where the workers are
/// not processes of one MPI program.
MPI_Comm make_communicator(Job& job, const std::string& name, std::chrono::milliseconds timeout);

/// Frees the communicator while MPI is running.
void free_communicator(MPI_Comm& communicator);

/// Returns MPI's message for an error code.
std::string mpi_words(int code);

}  // namespace lockstep::comm
