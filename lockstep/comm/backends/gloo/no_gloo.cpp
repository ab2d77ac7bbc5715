#include "lockstep/base/error.h"
#include "lockstep/comm/backends/gloo/gloo.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_gloo_transport(Job& job, const std::string& name, int num_lanes,
                                               std::chrono::milliseconds) {
  LOCKSTEP_CHECK_IMPLEMENTED(false, "[gloo] ", gloo_state().why_not, ": transport=", name, ", lanes=", num_lanes,
                             ", workers=", job.num_workers());
  return nullptr;
}

EngineState gloo_state() {
  return {.why_not = "built without Gloo; install libgloo-dev and build again", .remark = ""};
}

}  // namespace lockstep::comm
