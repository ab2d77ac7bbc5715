#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/state/state.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/metrics/metric_accumulator.h"
#include "lockstep/train/trainer/batch.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/trainer_options.h"

/// Internal: the loss and all metrics of an epoch.
namespace lockstep::detail {

class MetricSet {
 public:
  /// ValueError where two have the same name.
  MetricSet(const Strategy& strategy, const TrainerOptions& options);

  /// Inside a replica: adds a sum of losses and their number.
  void add_loss(const at::Tensor& sum, const at::Tensor& count) const;
  /// Inside a replica: adds the examples of a batch.
  void add(const Outputs& outputs, const Batch& batch, const at::Tensor& weights) const;

  /// Outside of `run`; all workers call them.
  Logs results() const;
  at::Tensor result(const std::string& name) const;
  void reset() const;
  State state() const;
  void load_state(const State& state) const;

 private:
  struct Tracked {
    MetricAccumulator values;
    size_t output = 0;
    bool weighted = false;
  };

  MetricAccumulator loss_;
  std::vector<Tracked> metrics_;
};

}  // namespace lockstep::detail
