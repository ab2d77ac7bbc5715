#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/metrics/metric.h"

namespace lockstep {

/// Accumulates a metric over replicas and workers. Also for loops by hand:
///
///     MetricAccumulator accuracy(strategy, metrics::sparse_categorical_accuracy());
///     strategy.run([&](torch::Tensor x, torch::Tensor y) { accuracy.update({model->forward(x), y}); }, batch);
///     std::cout << accuracy.result();
///
/// Nothing is copied to the host and nothing is exchanged before `result` is called. `update` is allowed in pure steps:
/// a replay counts. A cheap handle: copies accumulate together.
class LOCKSTEP_API MetricAccumulator {
 public:
  MetricAccumulator(const Strategy& strategy, std::shared_ptr<const Metric> metric);

  const Metric& metric() const { return *metric_; }

  /// Inside a replica: adds the examples of its batch. Nothing is recorded for autograd.
  void update(const MetricBatch& batch) const;

  /// Returns the result over the examples of all replicas and workers, on the CPU. Outside of `run`; all workers call
  /// it. The states are merged in the order of the replicas.
  at::Tensor result() const;
  /// Forgets all examples. Outside of `run`.
  void reset() const;

  /// What was accumulated, and back, under any number of replicas and workers: the same number of replicas take their
  /// own states again, otherwise the first one takes the merged state. All workers call them. ValueError for the state
  /// of another metric; then nothing has changed.
  State state() const;
  void load_state(const State& state) const;

 private:
  /// Copies of one tensor of the state, of all replicas of all workers, on the CPU.
  std::vector<at::Tensor> copies_of_all(size_t index) const;
  void write(size_t replica, const MetricState& state) const;

  std::shared_ptr<const Metric> metric_;
  Strategy strategy_;
  /// The state of each local replica, on its device. Under every strategy each replica has its own, also where
  /// variables are stored once. `update` writes this memory, so that a replayed step finds it.
  std::shared_ptr<const std::vector<MetricState>> states_;
};

}  // namespace lockstep
