#include "lockstep/comm/backends/gloo/gloo.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_gloo_transport(Job& job, const std::string& name, int num_lanes,
                                               std::chrono::milliseconds timeout) {
  return load_engine("gloo").make_transport(job, {.name = name, .num_lanes = num_lanes, .timeout = timeout});
}

EngineState gloo_state() { return state_of_engine("gloo"); }

}  // namespace lockstep::comm
