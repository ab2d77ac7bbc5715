#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"

/// Internal: LibTorch's optimizers that work for one optimizer of the user.
namespace lockstep::detail {

/// The optimizer whose options hold for all replicas, and the way to make others of its kind.
class LOCKSTEP_API OptimizerPrototype {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(Groups)>;

  /// `groups` are those of the first replica. `make_front` makes the optimizer that users see.
  OptimizerPrototype(Factory factory, const Factory& make_front, const Groups& groups);

  /// It is never stepped. Users set its options and read its parameter groups.
  torch::optim::Optimizer& front() const { return *front_; }
  /// An optimizer of the user's class, without parameters.
  const torch::optim::Optimizer& kind() const { return *kind_; }
  /// The parameter groups whose options hold now.
  const Groups& groups() const { return front_->param_groups(); }

  /// Makes an optimizer for one tensor, with the present options of a group.
  std::unique_ptr<torch::optim::Optimizer> make_for(at::Tensor parameter, size_t group) const;
  /// Makes an optimizer with as many groups, of these parameters.
  std::unique_ptr<torch::optim::Optimizer> make_for(const std::vector<std::vector<at::Tensor>>& parameters) const;

 private:
  Factory factory_;
  std::unique_ptr<torch::optim::Optimizer> front_;
  std::unique_ptr<torch::optim::Optimizer> kind_;
};

}  // namespace lockstep::detail
