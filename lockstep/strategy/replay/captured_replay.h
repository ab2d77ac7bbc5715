#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include "lockstep/device/captured_graph.h"
#include "lockstep/strategy/replay/capture_watch.h"
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
    /// What the graph reads in the place of the arguments, and the results that it writes.
    Tensors inputs;
    Tensors outputs;
    /// The arguments that the function writes to.
    std::vector<std::vector<char>> written;
    bool writes_arguments = false;
    /// Memory of tensors that the function knows from elsewhere.
    std::vector<c10::Storage> used_memory;
    std::unique_ptr<CapturedGraph> graph;
    std::shared_ptr<const void> structure;
    uint64_t last_call = 0;
    int64_t num_runs = 0;
    int64_t num_replays = 0;
    /// What the function called when it was recorded (CaptureWatch::calls).
    uint64_t calls = 0;
    /// Updates that one call makes on each replica.
    int64_t num_updates = 0;
    /// Why a run like the last one must not be recorded.
    std::string why_not;
  };
  /// A run that is recorded.
  struct Capture;

  std::string key_of(const StepArguments& arguments) const;
  Step& find(const StepArguments& arguments);
  void drop_oldest();
  Tensors new_inputs(const Tensors& arguments) const;
  void begin_capture(const StepArguments& arguments);
  std::string why_recording_failed() const;
  std::string why_not_of_gradients() const;
  void drop_recording();
  std::unique_ptr<Step> recorded_step(const Tensors& results, std::string& why_not);
  std::string why_not_recorded(bool has_graph) const;
  bool finish_capture(Tensors& results);
  void note_written(Step& step) const;
  void finish_graph(Step& step) const;
  /// Whether arguments share memory, one of which the function may write to.
  static bool overlap(const Step& step, const Tensors& arguments);
  void launch(Step& step, const Tensors& arguments, Tensors& results);
  void copy_the_others(const Step& step, const Tensors& arguments, Tensors& results) const;
  void seed_generators(const Step& step);
  Tensors on_devices(const Tensors& tensors) const;
  bool detach_used(Tensors& results) const;

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
  /// The tensors that the present run is called with, and, while it is recorded, those of the call.
  Tensors run_arguments_;
  Tensors call_arguments_;
  /// One for each replica, where there are several.
  std::vector<at::Generator> generators_;
  std::optional<c10::Stream> last_stream_;
  int64_t updates_before_ = 0;
  std::unique_ptr<Capture> capture_;
  std::optional<UsedGraphs> used_graphs_;
};

/// Returns what replays pure steps of a strategy whose replicas are on GPUs; null for others.
std::unique_ptr<StepReplay> make_captured_replay(StrategyImpl& strategy);

}  // namespace lockstep::detail
