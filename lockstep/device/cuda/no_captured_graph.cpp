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

bool is_capturing(c10::Device) { return false; }

void copy_together(at::TensorList sources, at::TensorList targets) {
  for (size_t i = 0; i < sources.size(); ++i) targets[i].copy_(sources[i]);
}

}  // namespace lockstep::detail
