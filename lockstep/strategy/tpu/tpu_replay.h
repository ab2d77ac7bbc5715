#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/strategy/replay/step_replay.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/xla/engine/replay.h"
#include "lockstep/xla/engine/replica_run.h"

namespace lockstep::detail {

/// Internal: replays pure steps of a TPUStrategy. Each combination of argument sizes, module modes and optimizer
/// options is a step of its own.
class TPUReplay final : public StepReplay {
 public:
  TPUReplay(StrategyImpl& strategy, const xla::ReplicaDevices& devices) : strategy_(strategy), devices_(devices) {}

  Tensors placed(const Tensors& arguments) override;
  bool replay(const Tensors& arguments, const std::string& other_arguments, Tensors& results) override;
  void begin_run(const Tensors& arguments, const std::string& other_arguments) override;
  void end_run(const Tensors& results) override;
  void run_failed() override;
  at::Tensor without_view(const at::Tensor& result) override;
  bool is_ready() const override { return refusal_.empty() && current_ != nullptr && current_->is_ready(); }
  std::string why_not() const override;
  void refuse(const std::string& why) override { refusal_ = why; }

 private:
  xla::Replay& find(const Tensors& arguments, const std::string& other_arguments);

  StrategyImpl& strategy_;
  const xla::ReplicaDevices& devices_;
  std::map<std::string, std::unique_ptr<xla::Replay>> steps_;
  xla::Replay* current_ = nullptr;
  std::string refusal_;
  /// How often generators had been seeded when the run began.
  uint64_t seedings_ = 0;
  /// Held while the function is traced.
  std::optional<std::unique_lock<std::recursive_mutex>> turn_;
};

/// The lock of a run. Runs of all TPU strategies take turns: their replicas may share devices.
std::recursive_mutex& tpu_run_mutex();

}  // namespace lockstep::detail
