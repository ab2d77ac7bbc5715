#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/strategy/optimizer/replica_check.h"
#include "lockstep/strategy/optimizer/update/optimizer_state.h"

/// Internal: LibTorch's SGD, Adam and AdamW for devices whose steps are compiled.
///
/// LibTorch counts steps and stores learning rates on the host, so that every step of its Adam is another program. Here
/// both are tensors on the device of the parameters: all steps are one program, which can be replayed. The arithmetic
/// is LibTorch's, value by value.
namespace lockstep::detail {

class DeviceOptimizer {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  virtual ~DeviceOptimizer() = default;

  /// Makes one for an optimizer of LibTorch and one replica's parameters, `groups[p]` being the group of parameter p.
  /// Null where the optimizer is of another kind, or where the device does not compile.
  static std::unique_ptr<DeviceOptimizer> make(const torch::optim::Optimizer& like,
                                               const std::vector<at::Tensor>& parameters,
                                               const std::vector<size_t>& groups);

  /// Copies changed learning rates to the device. Outside of a run: it is not part of the step.
  void take_rates(const Groups& options);
  /// Drops state that was made in a run that failed. Outside of a run.
  void drop_lost_state();
  /// Updates all parameters that have a gradient. A rate that was changed inside of the run holds from this step on.
  void step(const Groups& options);
  /// Adds the state of the parameters, which have these names.
  virtual void add_state(const std::vector<std::string>& names, HeldTensors& held) const = 0;

  /// The state of a parameter, with the number of its updates; empty before the first one. Outside of a run.
  virtual ParameterState state_of(size_t parameter) const = 0;
  /// Replaces the state of all parameters. Outside of a run.
  void load(const std::vector<ParameterState>& states);

 protected:
  DeviceOptimizer(std::vector<at::Tensor> parameters, std::vector<size_t> groups);

  /// Parameters of one group with the same number of updates, and that number.
  struct Cohort {
    size_t group = 0;
    std::vector<size_t> members;
    at::Tensor count;
    /// The cohort that it was split from, or itself.
    size_t split_from = 0;
  };

  /// Drops the state of parameters whose first update was in a run that failed.
  virtual void drop_uncomputed() = 0;
  virtual void update(const torch::optim::OptimizerOptions& options, const at::Tensor& rate, const Cohort& cohort) = 0;
  virtual void load_tensors(size_t parameter, const ParameterState& state) = 0;
  /// The number of updates of a parameter, read from the device.
  int64_t count_of(size_t parameter) const;

  std::vector<at::Tensor> parameters_;

 private:
  void split_cohorts();
  /// Returns whether a rate has changed.
  bool send_rates(const Groups& options);

  std::vector<Cohort> cohorts_;
  /// For each group: the rate on the device, and its value on the host.
  std::vector<at::Tensor> rates_;
  std::vector<double> sent_rates_;
  /// Whether a step has sent rates since the last run began: if its run failed, they are not on the device.
  bool sent_in_run_ = false;
  /// `xla::num_losses` when lost state was last looked for.
  uint64_t losses_ = 0;
};

/// Returns a hash of the options that are constants of a compiled step, not tensors.
size_t fingerprint(const torch::optim::Optimizer& optimizer);

/// Adds the learning rates of an optimizer that has them on the host: numbers of its steps.
void add_host_rates(const torch::optim::Optimizer& optimizer, std::vector<double>& rates);

}  // namespace lockstep::detail
