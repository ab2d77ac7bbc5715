#include "lockstep/strategy/optimizer/update/fused_update.h"

// This LibTorch has no fused optimizers.
namespace lockstep::detail {

class FusedUpdate::Impl {};

FusedUpdate::FusedUpdate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

FusedUpdate::~FusedUpdate() = default;

std::unique_ptr<FusedUpdate> FusedUpdate::make(const torch::optim::Optimizer& /*optimizer*/,
                                               c10::DeviceType /*device*/) {
  return nullptr;
}

void FusedUpdate::take_rates(const torch::optim::Optimizer& /*optimizer*/) {}

bool FusedUpdate::can_skip(torch::optim::Optimizer& /*optimizer*/) { return false; }

bool FusedUpdate::step(torch::optim::Optimizer& /*optimizer*/, const at::Tensor& /*found_inf*/) { return false; }

void FusedUpdate::give_counts(torch::optim::Optimizer& /*optimizer*/) {}

std::string FusedUpdate::why_not_captured() const { return "this LibTorch has no fused optimizers"; }

}  // namespace lockstep::detail
