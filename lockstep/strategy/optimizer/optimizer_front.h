#pragma once

#include <functional>
#include <type_traits>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"

namespace lockstep {

namespace detail {

[[noreturn]] LOCKSTEP_API void throw_step_of_front();
[[noreturn]] LOCKSTEP_API void throw_saving_of_front(const char* operation);

/// LibTorch's optimizer as `*optimizer` and `optimizer->` show it: parameter groups and options, which hold for all
/// replicas, also for a `torch::optim::LRScheduler`. Gradients and state belong to the replicas, so what works on them
/// is not offered here.
template <class O>
class ReplicatedOptimizerFront final : public O {
  static_assert(!std::is_final_v<O>, "lockstep derives from the class of an optimizer: it must not be final");

 public:
  using O::O;

  /// Deleted: call `optimizer.step()` and `optimizer.zero_grad()` inside the function given to `run`.
  void step() = delete;
  void zero_grad(bool set_to_none = true) = delete;
  /// Deleted: make the optimizer with all parameter groups, `optimizer<O>(model, groups_of, options)`.
  void add_param_group(const torch::optim::OptimizerParamGroup& group) = delete;

  at::Tensor step(torch::optim::Optimizer::LossClosure /*closure*/) override { throw_step_of_front(); }
  void save(torch::serialize::OutputArchive& /*archive*/) const override { throw_saving_of_front("save"); }
  void load(torch::serialize::InputArchive& /*archive*/) override { throw_saving_of_front("load"); }
};

}  // namespace detail

/// What `*optimizer` refers to: `O`, without the functions that would act on one replica alone.
template <class O>
using OptimizerFront = detail::ReplicatedOptimizerFront<O>;

}  // namespace lockstep
