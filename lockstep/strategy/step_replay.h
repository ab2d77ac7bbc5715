#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Inside: how a strategy that compiles runs a pure step again without running its function (pure.h).
class LOCKSTEP_API StepReplay {
 public:
  /// The tensors of each replica.
  using Tensors = std::vector<std::vector<at::Tensor>>;

  virtual ~StepReplay() = default;

  /// Puts arguments where the step wants them.
  virtual Tensors placed(const Tensors& arguments) = 0;
  /// Does the step without its function, where it is known well enough; false where the function must be run.
  /// `other_arguments` tells apart calls whose arguments that are not tensors differ.
  virtual bool replay(const Tensors& arguments, const std::string& other_arguments, Tensors& results) = 0;
  /// Around a run of the function, to get to know it.
  virtual void begin_run(const Tensors& arguments, const std::string& other_arguments) = 0;
  virtual void end_run(const Tensors& results) = 0;
  virtual void run_failed() = 0;

  virtual bool is_ready() const = 0;
  /// Why the last call was not replayed.
  virtual std::string why_not() const = 0;
  /// Says that it never will be.
  virtual void refuse(const std::string& why) = 0;
};

}  // namespace lockstep::detail
