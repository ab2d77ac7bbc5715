#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/xla/engine/execute.h"
#include "lockstep/xla/engine/launch.h"
#include "lockstep/xla/engine/replica_run.h"

namespace lockstep::xla {

/// A step that runs without tracing: its program, the storage that each argument comes from, and the one that each
/// result goes to.
///
/// A step is traced until two consecutive traces are the same program with the same numbers; then it is replayed. The
/// function must be pure: a replay does not see its other effects.
class LOCKSTEP_API Replay final : private ExecutionListener {
 public:
  /// The tensors of each replica.
  using Tensors = std::vector<std::vector<at::Tensor>>;
  /// Draws `count` seeds of a replica, the ones that a run of the function would draw.
  using DrawSeeds = std::function<std::vector<int64_t>(int replica, int64_t count)>;

  explicit Replay(const ReplicaDevices& devices);
  ~Replay() override;

  /// Called before and after a run of the function, whose arguments are lazy tensors.
  void begin_trace(const Tensors& arguments);
  void end_trace(const Tensors& results);
  void abandon_trace();

  bool is_ready() const { return is_ready_; }
  /// Why the step is not replayed; empty if it is.
  const std::string& why_not() const { return why_not_; }
  /// Discards the traces, because something that they depend on has changed.
  void forget(const std::string& why);

  /// Runs the step. Returns false if state was replaced or is shared, and the function must be traced again.
  bool replay(const Tensors& arguments, const DrawSeeds& draw_seeds, Tensors& results);

 private:
  struct Source;
  struct Sink;
  struct Number;
  struct Known;

  void on_launch(const PendingWork& work, int replica, const std::shared_ptr<const Program>& program) override;
  void on_separate_execution(const std::string& why) override;
  std::string compare_with_last() const;
  Value present_value(const Source& source, const std::vector<at::Tensor>& arguments, bool is_taken) const;
  void add_arguments(int replica, const std::vector<Value>& values, const DrawSeeds& draw_seeds,
                     LaunchArguments& launch) const;
  std::vector<at::Tensor> take_results(int replica, std::vector<std::vector<Buffer>>& buffers) const;

  std::vector<XlaDevice*> devices_;
  /// The last trace and the one before it, for each replica.
  std::vector<Known> now_;
  std::vector<Known> before_;
  /// The argument nodes of the current trace.
  std::vector<std::vector<Value>> arguments_;
  std::shared_ptr<const Program> program_;
  std::string why_not_ = "it has not been called yet";
  std::string refusal_;
  bool is_ready_ = false;
};

}  // namespace lockstep::xla
