#include <algorithm>

#include "lockstep/strategy/optimizer/optimizer_core_state.h"

/// Internal: what a step that is captured depends on, and whether its update can be.
namespace lockstep::detail {

/// A captured step has the addresses of parameters on GPUs, and the set of those that get gradients.
size_t OptimizerCoreState::fingerprint() const {
  size_t hash = detail::fingerprint(prototype.front()) + num_loads * 1000003;
  for (const ReplicaParameters& of_replica : tensors) {
    for (const at::Tensor& parameter : of_replica.parameters) {
      if (!parameter.is_cuda() || !parameter.has_storage()) continue;
      hash = hash * 1000003 ^ (reinterpret_cast<size_t>(parameter.data_ptr()) + (parameter.requires_grad() ? 1 : 0));
    }
  }
  return hash;
}

void OptimizerCoreState::add_numbers(std::vector<double>& numbers) const {
  const bool on_device = std::all_of(replicas.begin(), replicas.end(),
                                     [](const auto& replica) { return replica->whole->has_rates_on_device(); });
  if (!on_device) add_host_rates(prototype.front(), numbers);
}

std::string OptimizerCoreState::why_not_captured() const {
  if (!has_stepped_in_run) return "";  // a step that does without this optimizer
  for (const auto& replica : replicas) {
    if (replica->methods.count(UpdateMethod::Sharded) > 0)
      return "the replicas divide the update of parameters on the CPU";
    if (replica->methods.count(UpdateMethod::Rows) > 0) return "rows of sparse gradients are updated on the host";
    if (replica->divided) return "optimizer state is divided over the replicas";
    std::string why = replica->whole->why_not_captured();
    if (!why.empty()) return why;
  }
  return "";
}

void OptimizerCoreState::list_parameters(std::vector<at::Tensor>& parameters) const {
  for (const ReplicaParameters& of_replica : tensors) {
    parameters.insert(parameters.end(), of_replica.parameters.begin(), of_replica.parameters.end());
  }
}

void OptimizerCoreState::begin_recorded_run() {
  for (const auto& replica : replicas) replica->note_gradients_before_record();
}

void OptimizerCoreState::forget_recorded_run() {
  for (const auto& replica : replicas) replica->restore_gradients_before_record();
}

bool OptimizerCoreState::can_skip(OptimizerReplica& replica) const {
  const auto& devices = strategy->devices();
  const auto is_cuda = [](const LogicalDevice& device) { return device.torch_device.is_cuda(); };
  if (!std::all_of(devices.begin(), devices.end(), is_cuda)) return false;
  for (size_t p = 0; p < replica.tensors.parameters.size(); ++p) {
    const at::Tensor& gradient = replica.tensors.parameters[p].grad();
    if (!gradient.defined()) continue;
    if (replica.methods[p] != UpdateMethod::Replicated || gradient.layout() != at::kStrided) return false;
  }
  return replica.whole->can_skip();
}

}  // namespace lockstep::detail
