#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

/// Inside: LibTorch's SGD, Adam and AdamW for devices whose steps are compiled.
///
/// LibTorch counts steps and keeps learning rates on the host, so that every step of its Adam is another program. Here
/// both are tensors beside the parameters: all steps are one program, and it can be replayed. The arithmetic is
/// LibTorch's, value by value.
namespace lockstep::detail {

class DeviceOptimizer {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  virtual ~DeviceOptimizer() = default;

  /// Makes one for an optimizer of LibTorch and one replica's parameters, each of the group that `groups` says; null
  /// where the optimizer is of another kind, or the device of one that does not compile.
  static std::unique_ptr<DeviceOptimizer> make(const torch::optim::Optimizer& like,
                                               const std::vector<at::Tensor>& parameters,
                                               const std::vector<size_t>& groups);

  /// Takes learning rates from the options. Outside of a run: it is no part of the step.
  void take_rates(const Groups& options);
  /// Updates all parameters that have a gradient.
  void step(const Groups& options);

 protected:
  DeviceOptimizer(std::vector<at::Tensor> parameters, std::vector<size_t> groups);

  /// Parameters of one group that have been updated equally often, and how often that was.
  struct Cohort {
    size_t group = 0;
    std::vector<size_t> members;
    at::Tensor count;
  };

  virtual void update(const torch::optim::OptimizerOptions& options, const at::Tensor& rate, const Cohort& cohort) = 0;

  std::vector<at::Tensor> parameters_;

 private:
  void split_cohorts();

  std::vector<Cohort> cohorts_;
  /// One for each group: what the device has, and what was sent.
  std::vector<at::Tensor> rates_;
  std::vector<double> sent_rates_;
};

/// A number that changes only with options that no tensor stands for: where it has changed, a step is another one.
size_t fingerprint(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep::detail
