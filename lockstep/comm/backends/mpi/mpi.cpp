#include "lockstep/comm/backends/mpi/mpi.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

/// What the starters of MPI programs (Open MPI, MPICH and its relatives, Slurm with PMIx) tell their processes.
constexpr std::array kMarks{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD"};

std::string not_started() {
  const bool started =
      std::any_of(kMarks.begin(), kMarks.end(), [](auto* mark) { return std::getenv(mark) != nullptr; });
  return started ? "" : "this process was not started by mpirun or srun";
}

}  // namespace

std::shared_ptr<Transport> make_mpi_transport(Job& job, const std::string& name, int num_lanes,
                                              std::chrono::milliseconds timeout) {
  const auto why_not = not_started();
  LOCKSTEP_CHECK_COLLECTIVE(why_not.empty(),
                            "[mpi] all workers must be processes of one MPI program: worker=", job.name(job.worker()),
                            "; ", why_not);
  return load_engine("mpi").make_transport(job, {.name = name, .num_lanes = num_lanes, .timeout = timeout});
}

EngineState mpi_state() {
  auto why_not = not_started();
  if (!why_not.empty()) return {.why_not = std::move(why_not), .remark = ""};
  return state_of_engine("mpi");
}

}  // namespace lockstep::comm
