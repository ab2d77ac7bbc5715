#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/optimizer/loss_scaler_options.h"

namespace lockstep {

namespace detail {
class LossScale;
}

/// The factor of losses whose gradients are computed in float16, where small numbers would become zero.
///
///     LossScaler scaler;
///     strategy.run([&](torch::Tensor x, torch::Tensor y) {
///       const PolicyScope mixed({.compute = torch::kHalf});
///       adam.minimize(loss_of(model, x, y), {.scaler = &scaler});
///     }, x, y);
///
/// There is one scale for all replicas and workers. The loss is multiplied by it before backward, and the summed
/// gradients are divided by it. Where one of them is infinite or no number, no replica and none of the optimizers of
/// the call updates, and the scale shrinks. All replicas hold the same sums, so they decide alike without another
/// collective. A scaler belongs to the strategy that first uses it; strategies that compile steps refuse it. A cheap
/// handle.
///
/// On CPUs the host decides once per call. Where all replicas are on GPUs, the scale is a float32 on each of them, and
/// LibTorch's SGD, Adam and AdamW decide there: no step waits for the gradients. With other optimizers the host still
/// reads the decision. `scale()`, `num_skipped()` and `state()` wait for the GPU. Gradients that are not finite at any
/// scale are an error there at a later run, or when the numbers are read.
class LOCKSTEP_API LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {});

  /// The scale of the next loss. Outside of `run`, or as this replica sees it.
  double scale() const;
  /// The number of updates that were skipped.
  int64_t num_skipped() const;

  /// The scale and the counts. Outside of `run`.
  State state() const;
  /// Every worker loads the same values. Outside of `run`.
  void load_state(const State& state) const;

  /// Internal.
  detail::LossScale& impl() const { return *impl_; }

 private:
  std::shared_ptr<detail::LossScale> impl_;
};

}  // namespace lockstep
