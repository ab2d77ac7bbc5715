#include "lockstep/strategy/replay/on_devices.h"

#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

StepReplay::Tensors on_devices(const StrategyImpl& strategy, const StepReplay::Tensors& tensors) {
  StepReplay::Tensors placed = tensors;
  for (size_t replica = 0; replica < placed.size(); ++replica) {
    const c10::Device device = strategy.devices()[replica].torch_device;
    for (at::Tensor& tensor : placed[replica]) {
      if (tensor.defined() && tensor.device() != device) tensor = tensor.to(device);
    }
  }
  return placed;
}

}  // namespace lockstep::detail
