#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategy/replay/step_replay.h"
#include "lockstep/strategy/replay/used_graphs.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/xla/engine/replay.h"
#include "lockstep/xla/engine/replica_run.h"

namespace lockstep::detail {

/// Internal: finds out which numbers that a step is called with change from call to call.
class ChangingNumbers {
 public:
  /// Notes the value of a number and returns whether it changes: it has had more than three values.
  bool note(size_t position, const xla::StepNumber& value);
  /// The program may have changed with the number. The second time each value of the number is a step of its own from
  /// then on: it selects the program.
  void note_selects(size_t position);
  bool any_selects() const;

 private:
  struct Known {
    std::vector<xla::StepNumber> values;
    bool changes = false;
    bool selects = false;
    int program_changes = 0;
  };
  std::vector<Known> known_;
};

/// Internal: replays pure steps of a TPUStrategy. Each combination of argument sizes, modes, flags and options is a
/// step of its own; a limited number of them is kept.
class TPUReplay final : public StepReplay {
 public:
  TPUReplay(StrategyImpl& strategy, const xla::ReplicaDevices& devices);

  Tensors placed(const Tensors& tensors) override;
  bool replay(const StepArguments& arguments, Tensors& results) override;
  const Tensors& begin_run(const StepArguments& arguments) override;
  bool end_run(Tensors& results) override;
  bool run_failed() override;
  at::Tensor without_view(const at::Tensor& result) override;
  bool is_ready() const override { return refusal_.empty() && current_ != nullptr && current_->replay.is_ready(); }
  std::string why_not() const override;
  void refuse(const std::string& why) override { refusal_ = why; }
  void check_every(int64_t calls) override;
  std::shared_ptr<const void>& result_structure() override { return current_->structure; }

 private:
  /// The step for one combination.
  struct Step {
    explicit Step(const xla::ReplicaDevices& devices) : replay(devices) {}

    xla::Replay replay;
    std::shared_ptr<const void> structure;
    uint64_t last_call = 0;
    /// Updates that one call makes on each replica.
    int64_t num_updates = 0;
  };

  std::string key_of(const StepArguments& arguments);
  Step& find(const StepArguments& arguments);
  void forget_oldest();

  StrategyImpl& strategy_;
  const xla::ReplicaDevices& devices_;
  xla::ReplayChecks checks_;
  ChangingNumbers changing_;
  std::map<std::string, std::unique_ptr<Step>> steps_;
  Step* current_ = nullptr;
  /// The numbers of the present call: those of the step, then those of optimizers.
  xla::Replay::Numbers numbers_;
  /// How many of them are the step's, for each replica.
  std::vector<size_t> num_given_;
  uint64_t num_calls_ = 0;
  bool has_dropped_ = false;
  std::string refusal_;
  /// How often generators had been seeded when the run began.
  uint64_t seedings_ = 0;
  int64_t updates_before_ = 0;
  /// These two are there while the function is traced.
  std::optional<std::unique_lock<std::recursive_mutex>> turn_;
  std::optional<UsedGraphs> used_graphs_;
};

/// The lock of a run. Runs of all TPU strategies take turns: their replicas may share devices.
std::recursive_mutex& tpu_run_mutex();

}  // namespace lockstep::detail
