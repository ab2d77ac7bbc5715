#pragma once

#include <chrono>
#include <string>

#include <mpi.h>

#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// Initializes MPI unless the program has done so. MPI that was initialized here is finalized at exit, after this
/// process has left its jobs; not where the exit status is other than 0.
/// c10::NotImplementedError where the library does not let several threads communicate.
void start_mpi();

/// Makes the program exit without finalizing MPI: after a failure that would wait for processes that are gone.
void leave_mpi_unfinished();

/// Returns a communicator in which each worker has its own number as its rank. CollectiveError where the workers are
/// not processes of one MPI program.
MPI_Comm make_communicator(Job& job, const std::string& name, std::chrono::milliseconds timeout);

/// Frees the communicator while MPI is running.
void free_communicator(MPI_Comm& communicator);

/// Returns MPI's message for an error code.
std::string mpi_words(int code);

}  // namespace lockstep::comm
