#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/strategy/optimizer/device_scale.h"
#include "lockstep/strategy/optimizer/loss_scaler_options.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

/// Internal: the numbers of a LossScaler, a set for each replica of this process. All replicas change theirs alike, so
/// no replica sees a change that another one has made too early. Where all replicas are on GPUs, theirs are tensors
/// there. Thread-safe.
class LossScale final : public RunObserver, public std::enable_shared_from_this<LossScale> {
 public:
  using Numbers = ScaleNumbers;

  explicit LossScale(const LossScalerOptions& options);

  /// Inside a replica: the scale of a loss. Throws for a second strategy.
  StepScale begin_step(StrategyImpl& strategy, int replica);
  /// Inside a replica: the gradients of a step were finite, or were not.
  void end_step(int replica, bool finite);
  /// The same where the scale is on the device. `is_read` says whether the host reads `found_inf`.
  void end_step(int replica, const at::Tensor& found_inf, bool is_read);

  Numbers numbers() const;
  void load(const Numbers& numbers);

  /// After a run that failed, replicas may have stopped at different steps: all take the numbers of the first one.
  uint64_t before_run() override;
  void after_run() override;
  std::string why_not_captured() const override;

 private:
  struct Replica {
    Numbers numbers;
    /// Null where the numbers are on the host.
    std::unique_ptr<DeviceScale> on_device = nullptr;
    std::optional<c10::Stream> stream = std::nullopt;
    /// Whether the numbers are those that it starts with.
    bool is_new = true;
  };

  /// The numbers that hold, on the host or the device.
  Replica& of_replica(int replica);
  Numbers numbers_of(int replica) const;

  const LossScalerOptions options_;
  mutable std::mutex mutex_;
  /// What new replicas start with.
  Numbers first_;
  std::map<int, Replica> replicas_;
  bool on_devices_ = false;
  /// Whether a step of the last run was decided on the host.
  bool is_read_ = false;
  std::weak_ptr<StrategyImpl> strategy_;
  bool is_bound_ = false;
  /// Whether a run has used it and not ended.
  bool in_run_ = false;
  /// Whether workers may have different numbers, by a load or a run that failed.
  bool is_unsure_ = false;
};

}  // namespace lockstep::detail
