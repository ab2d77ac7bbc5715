#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep {

/// What a metric keeps of the examples that it has seen: sums and counts, for example.
using MetricState = std::vector<at::Tensor>;

/// One replica's part of a batch.
struct MetricBatch {
  /// What the model returned, and what it should have returned. On the replica's device; they may have no rows.
  at::Tensor output;
  at::Tensor target;
  /// One weight for each row; undefined: all are 1.
  at::Tensor weights = {};
};

/// A number, or a tensor, that is computed over all examples of an epoch. `metrics.h` has the usual ones.
///
/// Each replica accumulates the state of its own examples on its device. The states of all replicas are merged when
/// somebody asks for the result (metric_accumulator.h). A metric has no state itself, so that several trainings may
/// use it. A metric of a user's own:
///
///     class MaxError final : public Metric {
///      public:
///       MaxError() : Metric("max_error") {}
///       MetricState initial() const override { return {torch::zeros({})}; }
///       MetricState update(const MetricState& state, const MetricBatch& batch) const override {
///         auto errors = (batch.output - batch.target).abs().flatten();
///         return {torch::cat({state[0].view(1), errors}).max()};
///       }
///       MetricState merge(const MetricState& a, const MetricState& b) const override {
///         return {torch::maximum(a[0], b[0])};
///       }
///       at::Tensor result(const MetricState& state) const override { return state[0]; }
///     };
class LOCKSTEP_API Metric {
 public:
  /// ValueError for an empty name and one with a point.
  explicit Metric(std::string name);
  virtual ~Metric() = default;

  /// The name in logs.
  const std::string& name() const { return name_; }

  /// Returns the state of no examples, on the CPU. It is the neutral element of `merge`.
  virtual MetricState initial() const = 0;
  /// Inside a replica: returns the state with the examples of a batch, which may have no rows. It only computes with
  /// tensors: it reads none of their values, so that XLA can compile it, and writes none of them. For XLA it makes the
  /// same calls for any number of rows, also for none. Shapes and dtypes stay those of `initial`.
  virtual MetricState update(const MetricState& state, const MetricBatch& batch) const = 0;
  /// Returns the state of the examples of both, on the CPU. Without an override it adds.
  virtual MetricState merge(const MetricState& a, const MetricState& b) const;
  /// Returns the result for a merged state, on the CPU.
  virtual at::Tensor result(const MetricState& state) const = 0;

 private:
  std::string name_;
};

}  // namespace lockstep
