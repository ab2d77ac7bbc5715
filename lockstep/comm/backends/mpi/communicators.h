#pragma once

#include <chrono>
#include <string>

#include <mpi.h>

#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// Starts MPI unless the program has; what was started here is ended when the program exits. c10::NotImplementedError
/// where the library does not let several threads communicate.
void start_mpi();

/// After a failure the end of MPI would wait for processes that are gone: the program exits without it.
void leave_mpi_unfinished();

/// Returns a communicator in which each worker has its own number as its rank. CollectiveError where the workers are
/// not processes of one MPI program.
MPI_Comm make_communicator(Job& job, const std::string& name, std::chrono::milliseconds timeout);

/// Frees it, where MPI still can.
void free_communicator(MPI_Comm& communicator);

/// Returns MPI's words for an error.
std::string mpi_words(int code);

}  // namespace lockstep::comm
