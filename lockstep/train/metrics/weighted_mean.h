#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/train/metrics/metric.h"

/// Internal: metrics that are the mean of a value of each element.
namespace lockstep::metrics {

/// Its state is the sum of the weighted values, and that of the weights.
class WeightedMean : public Metric {
 public:
  using Metric::Metric;

  MetricState initial() const final;
  MetricState update(const MetricState& state, const MetricBatch& batch) const final;
  at::Tensor result(const MetricState& state) const override;

 protected:
  /// Throws ValueError unless shapes and dtypes fit. The weights are checked elsewhere.
  virtual void check(const MetricBatch& batch) const = 0;
  /// The values of a batch; the first dimension has the rows.
  virtual at::Tensor values(const MetricBatch& batch) const = 0;
  /// Which values count; undefined: all.
  virtual at::Tensor counted(const MetricBatch& /*batch*/) const { return {}; }
};

}  // namespace lockstep::metrics
