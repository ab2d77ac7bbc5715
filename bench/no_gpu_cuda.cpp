#include "bench/gpu_cuda.h"

namespace lockstep::bench {

std::unique_ptr<StepByHand> capture_by_hand(const GpuCase& /*gpu_case*/, const ModelBatch& /*batch*/,
                                            const GpuModel& /*first*/, double /*learning_rate*/) {
  return nullptr;
}

std::optional<CardBytes> card_bytes() { return std::nullopt; }

std::string card_name() { return "GPU"; }

std::string why_not_captured() {
  return "this build has no CUDA; build with LibTorch 2.8 or newer that has CUDA, and the CUDA toolkit";
}

}  // namespace lockstep::bench
