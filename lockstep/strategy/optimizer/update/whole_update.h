#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"
#include "lockstep/strategy/optimizer/replica_check.h"
#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"
#include "lockstep/strategy/optimizer/update/optimizer_state.h"
#include "lockstep/strategy/optimizer/update/update_plan.h"

/// Internal: updates of whole parameters from summed gradients (see `UpdateMethod::Replicated`).
namespace lockstep::detail {

class StrategyImpl;

/// One replica's part. There are three implementations:
///   - replicated: LibTorch's optimizer updates the replica's own copy, on GPUs in few kernels (FusedUpdate);
///   - on the device: DeviceOptimizer does, for devices whose steps are compiled;
///   - central: what is stored once is updated by the first replica, while the others wait.
class WholeUpdate {
 public:
  using Closure = std::function<at::Tensor()>;

  WholeUpdate() = default;
  WholeUpdate(const WholeUpdate&) = delete;
  WholeUpdate& operator=(const WholeUpdate&) = delete;
  virtual ~WholeUpdate() = default;

  /// Updates the replicated parameters from their gradients, which are sums over all replicas.
  virtual void step() = 0;
  /// For optimizers that evaluate the loss several times: `closure` sums loss and gradients over all replicas. Returns
  /// what it returned first.
  virtual at::Tensor step(const Closure& closure) = 0;

  /// Whether `step_unless` can be called with the gradients that there are.
  virtual bool can_skip() { return false; }
  /// What `step` does; nothing where `found_inf`, a float on the device of the parameters, is 1. It is not read on the
  /// host.
  virtual void step_unless(const at::Tensor& found_inf);

  /// Why a step like the last one must not be captured in a CUDA graph; empty if it may. What a captured step depends
  /// on is in tensors on the device then: the learning rates, which `before_run` sends, and the numbers of steps.
  virtual std::string why_not_captured() const { return ""; }
  /// Whether learning rates are no constants of a captured step.
  virtual bool has_rates_on_device() const { return false; }

  /// Whether steps are compiled, so that values of tensors must not be read on the host.
  virtual bool is_compiled() const { return false; }
  /// Adds the state that every replica keeps for its parameters, which have these names.
  virtual void add_state(const std::vector<std::string>& /*names*/, HeldTensors& /*held*/) const {}
  /// Outside of a run: takes options over that are tensors on the device.
  virtual void before_run() {}

  /// Outside of a run: the state of a replicated parameter, empty before its first update.
  virtual ParameterState state_of(size_t parameter) const = 0;
  /// Outside of a run: replaces the state of all parameters; empty ones are as before the first update. The tensors
  /// are on the devices of the parameters, and are kept.
  virtual void load(const std::vector<ParameterState>& states) = 0;
};

/// What an update of whole parameters works with. All references must outlive it.
struct WholeUpdateSetup {
  const StrategyImpl& strategy;
  int replica;
  const ReplicaParameters& parameters;
  const std::vector<size_t>& groups;
  const UpdateMethods& methods;
  const OptimizerPrototype& prototype;
  GradientExchange& exchange;
};

/// Makes the implementation that parameters, device and optimizer need.
LOCKSTEP_API std::unique_ptr<WholeUpdate> make_whole_update(const WholeUpdateSetup& setup);

}  // namespace lockstep::detail
