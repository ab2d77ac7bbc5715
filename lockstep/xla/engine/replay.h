#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/xla/engine/execute.h"
#include "lockstep/xla/engine/launch.h"
#include "lockstep/xla/engine/recorded_step.h"
#include "lockstep/xla/engine/replica_run.h"

namespace lockstep::xla {

/// At which calls a step that is replayed is traced again, to compare the function with the program.
struct ReplayChecks {
  /// Every so many calls; 0 for never.
  int64_t every = 1000;
  /// At these calls, too.
  std::vector<int64_t> at{10, 100};

  bool are_due(int64_t call) const;
};

/// A step that runs without tracing: its program, the storage that each argument comes from, and the one that each
/// result goes to.
///
/// A step is traced until two consecutive traces are the same program with the same numbers; then it is replayed.
/// Numbers that it is called with may differ: they become arguments of the program. The function must be pure: a replay
/// does not see its other effects. Therefore it is traced again from time to time.
class LOCKSTEP_API Replay final : private ExecutionListener {
 public:
  /// The tensors of each replica.
  using Tensors = std::vector<std::vector<at::Tensor>>;
  /// The numbers of each replica.
  using Numbers = std::vector<std::vector<StepNumber>>;
  /// Draws `count` seeds of a replica, the ones that a run of the function would draw.
  using DrawSeeds = std::function<std::vector<int64_t>(int replica, int64_t count)>;

  explicit Replay(const ReplicaDevices& devices);
  ~Replay() override;

  /// Called before and after a run of the function, whose arguments are lazy tensors.
  /// `num_from_caller`: how many of the numbers, for each replica, the caller gives; optimizers give the others.
  void begin_trace(const Tensors& arguments, const Numbers& numbers, const std::vector<size_t>& num_from_caller);
  /// `has_graph`: a result has a graph for gradients.
  void end_trace(const Tensors& results, bool has_graph);
  void abandon_trace();

  bool is_ready() const { return is_ready_; }
  /// Why the step is not replayed; empty if it is.
  const std::string& why_not() const { return why_not_; }
  /// Discards the traces, because something that they depend on has changed.
  void forget(const std::string& why);

  /// Runs the step, after what is pending on the devices. Returns false if the function must be traced: state was
  /// replaced or is shared, a number has changed for the first time or has a value that the program does not hold for,
  /// or a check is due.
  bool replay(const Tensors& arguments, const Numbers& numbers, const ReplayChecks& checks, const DrawSeeds& draw_seeds,
              Tensors& results);

  /// After a trace: the numbers that may select the program.
  const std::vector<size_t>& numbers_that_select(size_t replica) const { return now_selects_[replica]; }

  /// Throws if the last trace was a check and found a difference.
  void throw_difference();

 private:
  void on_launch(const PendingWork& work, int replica, const std::shared_ptr<const Program>& program) override;
  void on_separate_execution(const std::string& why) override;
  std::string compare_with_last(bool has_graph);
  std::string first_refusal() const;
  Value present_value(const RecordedStep::Source& source, size_t replica, const std::vector<at::Tensor>& arguments,
                      bool is_taken) const;
  bool knows(const Numbers& numbers) const;
  void add_arguments(int replica, const std::vector<Value>& values, const std::vector<StepNumber>& given,
                     const DrawSeeds& draw_seeds, LaunchArguments& launch) const;
  std::vector<at::Tensor> take_results(int replica, std::vector<std::vector<Buffer>>& buffers) const;

  std::vector<XlaDevice*> devices_;
  /// Guards what executions note: replicas that read values execute at the same time.
  std::mutex notes_;
  /// The last trace and the one before it, for each replica.
  std::vector<RecordedStep> now_;
  std::vector<RecordedStep> before_;
  /// The storages of the arguments of the current trace.
  std::vector<std::vector<LazyStorage*>> arguments_;
  std::shared_ptr<const Program> program_;
  std::string why_not_ = "it has not been called yet";
  std::string refusal_;
  bool is_ready_ = false;
  /// Calls so far, and the first one that was replayed after the last trace.
  int64_t num_calls_ = 0;
  int64_t first_replayed_ = 0;
  bool is_check_ = false;
  std::vector<std::vector<size_t>> now_selects_;
  /// What a check has found; empty if nothing.
  std::string difference_;
};

}  // namespace lockstep::xla
