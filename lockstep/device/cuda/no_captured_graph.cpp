#include "lockstep/base/error.h"
#include "lockstep/device/captured_graph.h"

namespace lockstep::detail {

std::string why_no_captured_graph(c10::Device device) {
  return device.is_cuda() ? "lockstep was built without CUDA graphs, which need LibTorch 2.8 and the CUDA toolkit"
                          : "the device is no GPU";
}

GraphPool new_graph_pool() { return {}; }

std::unique_ptr<CapturedGraph> make_captured_graph(c10::Device device, const GraphPool&) {
  LOCKSTEP_ASSERT(false, why_no_captured_graph(device));
  return nullptr;
}

void free_cached_memory(c10::Device) {}

bool is_capturing(c10::Device) { return false; }

}  // namespace lockstep::detail
