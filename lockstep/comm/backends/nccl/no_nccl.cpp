#include "lockstep/base/error.h"
#include "lockstep/comm/backends/nccl/nccl.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_nccl_transport(Job& job, const std::string& name, int num_lanes,
                                               const std::vector<int>& devices, std::chrono::milliseconds) {
  LOCKSTEP_CHECK_IMPLEMENTED(false, "[nccl] ", nccl_state().why_not, ": transport=", name, ", lanes=", num_lanes,
                             ", devices=", devices.size(), ", workers=", job.num_workers());
  return nullptr;
}

EngineState nccl_state() {
  return {.why_not = "built without NCCL; use a LibTorch with CUDA, install NCCL's headers and build again",
          .remark = ""};
}

}  // namespace lockstep::comm
