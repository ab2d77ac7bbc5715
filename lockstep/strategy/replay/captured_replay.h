#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "lockstep/device/captured_graph.h"
#include "lockstep/strategy/replay/captured_step.h"
#include "lockstep/strategy/replay/run_recording.h"
#include "lockstep/strategy/replay/step_replay.h"
#include "lockstep/strategy/replay/used_graphs.h"
#include "lockstep/xla/engine/replay.h"

namespace lockstep::detail {

class StrategyImpl;

/// Internal: replays pure steps of replicas on a GPU as CUDA graphs.
///
/// Each combination of argument sizes, numbers, modes and options is a step of its own. It runs a few times, so that
/// optimizers have their state and libraries have chosen their kernels; then a run is recorded. Arguments are copied
/// into tensors that belong to the graph, and results out of it. A step that cannot be recorded runs as `run` does.
class CapturedReplay final : public StepReplay {
 public:
  explicit CapturedReplay(StrategyImpl& strategy);
  ~CapturedReplay() override;

  /// Arguments stay where they are: they are copied to where the graph reads them.
  Tensors placed(const Tensors& tensors) override { return tensors; }
  bool replay(const StepArguments& arguments, Tensors& results) override;
  const Tensors& begin_run(const StepArguments& arguments) override;
  bool end_run(Tensors& results) override;
  bool run_failed() override;
  at::Tensor without_view(const at::Tensor& result) override { return result; }
  bool is_ready() const override { return why_not().empty(); }
  std::string why_not() const override;
  void refuse(const std::string& why) override;
  void check_every(int64_t calls) override;
  std::shared_ptr<const void>& result_structure() override { return current_->structure; }

 private:
  /// The step for one combination.
  struct Step {
    /// Null until it has been recorded.
    std::unique_ptr<CapturedStep> captured;
    std::shared_ptr<const void> structure;
    uint64_t last_call = 0;
    int64_t num_runs = 0;
    int64_t num_replays = 0;
    /// Why a run like the last one must not be recorded.
    std::string why_not;
  };

  std::string key_of(const StepArguments& arguments) const;
  Step& find(const StepArguments& arguments);
  void begin_recording(const Tensors& arguments);
  void end_recording();
  /// Nothing of the run was computed.
  void drop_recording();
  /// Does that, and the step runs as `run` does from now on. Where a graph of it was replayed before, it is an error
  /// that the function can no longer be recorded; the run that follows ends with it.
  void refuse_recorded(const RunRecording::Failure& failure);
  bool finish_recording(Tensors& results, bool has_graph);
  void launch(Step& step, const Tensors& arguments, Tensors& results);
  void seed_generators(const Step& step);

  StrategyImpl& strategy_;
  const c10::Device device_;
  GraphPool pool_;
  std::map<std::string, std::unique_ptr<Step>> steps_;
  Step* current_ = nullptr;
  Step outside_;  // for calls that are not looked up
  uint64_t num_calls_ = 0;
  /// Hashes of all combinations so far.
  std::unordered_set<size_t> known_;
  std::string refusal_;
  bool is_nested_ = false;
  xla::ReplayChecks checks_;
  /// The tensors that the present run is called with, where it is not recorded.
  Tensors run_arguments_;
  /// One for each replica, where there are several.
  std::vector<at::Generator> generators_;
  std::optional<c10::Stream> last_stream_;
  /// The present run, where it is recorded.
  std::unique_ptr<RunRecording> recording_;
  /// How the function differs from the graph that was replayed; empty if it does not.
  std::string difference_;
  std::optional<UsedGraphs> used_graphs_;
};

/// Returns what replays pure steps of a strategy whose replicas are on GPUs; null for others.
std::unique_ptr<StepReplay> make_captured_replay(StrategyImpl& strategy);

}  // namespace lockstep::detail
