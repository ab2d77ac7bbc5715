#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: the arguments of a call of a pure step.
struct StepArguments {
  /// The tensors of each replica, on its device.
  std::vector<std::vector<at::Tensor>> tensors;
  /// The numbers of each replica.
  std::vector<std::vector<std::variant<int64_t, double>>> numbers;
  /// An encoding of all other arguments, and of the types of numbers.
  std::string others;
};

/// Internal: repeats a pure step (pure.h) of a strategy that compiles or records, without calling its function.
class LOCKSTEP_API StepReplay {
 public:
  /// The tensors of each replica.
  using Tensors = std::vector<std::vector<at::Tensor>>;

  virtual ~StepReplay() = default;

  /// Returns the tensors where `replay` and `begin_run` want them: on the devices of their replicas, or as they are.
  virtual Tensors placed(const Tensors& tensors) = 0;
  /// Replays the step and returns true, or returns false if the function must be called.
  virtual bool replay(const StepArguments& arguments, Tensors& results) = 0;
  /// These enclose a run of the function, which they record. `begin_run` returns the tensors that the function is
  /// called with. `end_run` detaches results whose graph the function has used up, as a replay does, and returns false
  /// if the function must be run once more, because nothing of this run was computed.
  virtual const Tensors& begin_run(const StepArguments& arguments) = 0;
  virtual bool end_run(Tensors& results) = 0;
  /// The run threw. Returns true if it threw because it was recorded: the function must be run once more.
  virtual bool run_failed() = 0;
  /// Returns a result of the function as a tensor with memory of its own: a copy of a view. Called by the replica, in
  /// the run.
  virtual at::Tensor without_view(const at::Tensor& result) = 0;

  virtual bool is_ready() const = 0;
  /// Why the last call was not replayed.
  virtual std::string why_not() const = 0;
  /// Never replays the step from now on.
  virtual void refuse(const std::string& why) = 0;
  /// Where the structure of the results is stored that the last call had, one for each combination of arguments.
  virtual std::shared_ptr<const void>& result_structure() = 0;
  /// Traces the step again at every so many calls, to compare it with what is replayed; 0 for never.
  virtual void check_every(int64_t calls) = 0;
};

}  // namespace lockstep::detail
