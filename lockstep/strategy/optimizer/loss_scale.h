#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "lockstep/strategy/optimizer/loss_scaler_options.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

/// Internal: the numbers of a LossScaler, a set for each replica of this process. All replicas change theirs alike, so
/// no replica sees a change that another one has made too early. Thread-safe.
class LossScale final : public RunObserver, public std::enable_shared_from_this<LossScale> {
 public:
  struct Numbers {
    double scale = 0;
    /// Updates in a row since the scale was last changed.
    int64_t num_good = 0;
    int64_t num_skipped = 0;
  };

  explicit LossScale(const LossScalerOptions& options);

  /// Inside a replica: the scale of a loss. Throws for a second strategy.
  double begin_step(StrategyImpl& strategy, int replica);
  /// Inside a replica: the gradients of a step were finite, or were not.
  void end_step(int replica, bool finite);

  /// Whether floats can be multiplied and divided by it.
  static bool is_scale(double scale);

  Numbers numbers() const;
  void load(const Numbers& numbers);

  /// After a run that failed, replicas may have stopped at different steps: all take the numbers of the first one.
  uint64_t before_run() override;
  void after_run() override;

 private:
  Numbers& of_replica(int replica);

  const LossScalerOptions options_;
  mutable std::mutex mutex_;
  /// What replicas that are not in `replicas_` start with.
  Numbers first_;
  std::map<int, Numbers> replicas_;
  std::weak_ptr<StrategyImpl> strategy_;
  bool is_bound_ = false;
  bool in_run_ = false;
  /// Whether workers may have different numbers, by a load or a run that failed.
  bool is_unsure_ = false;
};

}  // namespace lockstep::detail
