#include "lockstep/comm/backends/nccl/nccl.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_nccl_transport(Job& job, const std::string& name, int num_lanes,
                                               const std::vector<int>& devices, std::chrono::milliseconds timeout) {
  return load_engine("nccl").make_transport(
      job, {.name = name, .num_lanes = num_lanes, .devices = devices, .timeout = timeout});
}

EngineState nccl_state() { return state_of_engine("nccl"); }

}  // namespace lockstep::comm
