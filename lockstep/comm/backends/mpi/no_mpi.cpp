#include "lockstep/base/error.h"
#include "lockstep/comm/backends/mpi/mpi.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_mpi_transport(Job& job, const std::string& name, int num_lanes,
                                              std::chrono::milliseconds) {
  LOCKSTEP_CHECK_IMPLEMENTED(false, "[mpi] ", mpi_state().why_not, ": transport=", name, ", lanes=", num_lanes,
                             ", workers=", job.num_workers());
  return nullptr;
}

EngineState mpi_state() {
  return {.why_not = "built without MPI; install libopenmpi-dev and build again", .remark = ""};
}

}  // namespace lockstep::comm
