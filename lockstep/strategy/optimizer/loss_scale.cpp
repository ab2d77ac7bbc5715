#include "lockstep/strategy/optimizer/loss_scale.h"

#include <bit>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/strategy/context_frame.h"

namespace lockstep::detail {
namespace {

/// Scales are factors of float32 numbers.
constexpr double kSmallestScale = std::numeric_limits<float>::min();
constexpr double kLargestScale = std::numeric_limits<float>::max();

}  // namespace

bool LossScale::is_scale(double scale) { return scale >= kSmallestScale && scale <= kLargestScale; }

LossScale::LossScale(const LossScalerOptions& options) : options_(options), first_{options.initial} {
  LOCKSTEP_CHECK_VALUE(is_scale(options.initial),
                       "[loss scaler] the scale must be a positive float: initial=", options.initial);
  LOCKSTEP_CHECK_VALUE(options.growth > 1 && std::isfinite(options.growth),
                       "[loss scaler] the scale must grow: growth=", options.growth, "; give a number above 1");
  LOCKSTEP_CHECK_VALUE(options.backoff > 0 && options.backoff < 1,
                       "[loss scaler] the scale must shrink: backoff=", options.backoff,
                       "; give a number between 0 and 1");
  LOCKSTEP_CHECK_VALUE(options.growth_interval > 0,
                       "[loss scaler] the interval must be positive: growth_interval=", options.growth_interval);
}

LossScale::Numbers& LossScale::of_replica(int replica) { return replicas_.try_emplace(replica, first_).first->second; }

double LossScale::begin_step(StrategyImpl& strategy, int replica) {
  LOCKSTEP_CHECK_IMPLEMENTED(!strategy.is_traced(), "[loss scaler] ", strategy.type_name(), " compiles steps, which ",
                             "cannot skip an update by the values of gradients; compute in bfloat16, which needs no ",
                             "scale");
  const std::lock_guard lock(mutex_);
  if (!is_bound_) {
    is_bound_ = true;
    in_run_ = true;
    strategy_ = strategy.weak_from_this();
    strategy.add_run_observer(shared_from_this());
  }
  LOCKSTEP_CHECK_VALUE(strategy_.lock().get() == &strategy,
                       "[loss scaler] a scaler belongs to the strategy that first used it: strategy=",
                       strategy.type_name(), "; make one for each strategy");
  return of_replica(replica).scale;
}

void LossScale::end_step(int replica, bool finite) {
  const std::lock_guard lock(mutex_);
  Numbers& numbers = of_replica(replica);
  if (!finite) {
    numbers.num_good = 0;
    ++numbers.num_skipped;
    LOCKSTEP_CHECK_VALUE(is_scale(numbers.scale * options_.backoff),
                         "[loss scaler] gradients are not finite at any scale: scale=", numbers.scale,
                         ", updates skipped=", numbers.num_skipped,
                         "; the loss or the model computes infinities or NaN");
    numbers.scale *= options_.backoff;
    return;
  }
  if (++numbers.num_good < options_.growth_interval) return;
  numbers.num_good = 0;
  if (is_scale(numbers.scale * options_.growth)) numbers.scale *= options_.growth;
}

LossScale::Numbers LossScale::numbers() const {
  const ContextFrame* frame = current_frame();
  const std::lock_guard lock(mutex_);
  const auto found = replicas_.find(frame != nullptr && frame->replica >= 0 ? frame->replica : 0);
  return found == replicas_.end() ? first_ : found->second;
}

void LossScale::load(const Numbers& numbers) {
  const std::lock_guard lock(mutex_);
  first_ = numbers;
  replicas_.clear();
  is_unsure_ = true;
}

uint64_t LossScale::before_run() {
  const std::lock_guard lock(mutex_);
  if (in_run_) is_unsure_ = true;
  in_run_ = true;
  if (!is_unsure_) return 0;
  is_unsure_ = false;
  if (const auto zero = replicas_.find(0); zero != replicas_.end()) first_ = zero->second;
  replicas_.clear();
  const uint64_t hash = mix_hash(std::bit_cast<uint64_t>(first_.scale), static_cast<uint64_t>(first_.num_good));
  return hash | 1;
}

void LossScale::after_run() {
  const std::lock_guard lock(mutex_);
  in_run_ = false;
}

}  // namespace lockstep::detail
