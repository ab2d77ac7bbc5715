#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: repeats a pure step (pure.h) of a strategy that compiles, without calling its function.
class LOCKSTEP_API StepReplay {
 public:
  /// The tensors of each replica.
  using Tensors = std::vector<std::vector<at::Tensor>>;

  virtual ~StepReplay() = default;

  /// Returns the arguments on the devices of their replicas.
  virtual Tensors placed(const Tensors& arguments) = 0;
  /// Replays the step and returns true, or returns false if the function must be called. `other_arguments` encodes the
  /// arguments that are not tensors.
  virtual bool replay(const Tensors& arguments, const std::string& other_arguments, Tensors& results) = 0;
  /// These enclose a run of the function, which they record.
  virtual void begin_run(const Tensors& arguments, const std::string& other_arguments) = 0;
  virtual void end_run(const Tensors& results) = 0;
  virtual void run_failed() = 0;
  /// Returns a result of the function as a tensor with memory of its own: a copy of a view. Called by the replica, in
  /// the run.
  virtual at::Tensor without_view(const at::Tensor& result) = 0;

  virtual bool is_ready() const = 0;
  /// Why the last call was not replayed.
  virtual std::string why_not() const = 0;
  /// Never replays the step from now on.
  virtual void refuse(const std::string& why) = 0;
};

}  // namespace lockstep::detail
