#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/train/metrics/metric_inputs.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

/// The state, for each column: sum of the weights, mean of the targets, sum of the weighted squares of the targets'
/// differences to that mean, and the same for the differences of outputs and targets.
class R2 final : public Metric {
 public:
  explicit R2(const R2Options& options) : Metric(options.name), num_outputs_(options.num_outputs) {
    LOCKSTEP_CHECK_VALUE(num_outputs_ >= 1, "[r2] there must be a column: num_outputs=", num_outputs_);
  }

  MetricState initial() const override {
    const at::Tensor zeros = at::zeros({num_outputs_}, at::kDouble);
    return {zeros, zeros.clone(), zeros.clone(), zeros.clone()};
  }

  MetricState update(const MetricState& state, const MetricBatch& batch) const override {
    check_same_shapes(*this, batch);
    check_weights(*this, batch);
    const bool is_column = batch.output.dim() == 1 && num_outputs_ == 1;
    LOCKSTEP_CHECK_VALUE(is_column || (batch.output.dim() == 2 && batch.output.size(1) == num_outputs_),
                         "[r2] outputs must have the shape [rows, num_outputs]: metric=", name(),
                         ", num_outputs=", num_outputs_, ", output=", batch.output.sizes());
    const at::Tensor outputs = batch.output.to(at::kDouble).reshape({-1, num_outputs_});
    const at::Tensor targets = batch.target.to(at::kDouble).reshape({-1, num_outputs_});
    const at::Tensor weights = element_weights_or_ones(batch.weights, targets);
    const at::Tensor total = weights.sum(0);
    const at::Tensor mean =
        weighted_values(targets, weights).sum(0) / at::where(total.eq(0), at::ones_like(total), total);
    const at::Tensor squares = weighted_values((targets - mean).square(), weights).sum(0);
    const at::Tensor residuals = weighted_values((targets - outputs).square(), weights).sum(0);
    return merge(state, {total, mean, squares, residuals});
  }

  /// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
  MetricState merge(const MetricState& a, const MetricState& b) const override {
    const at::Tensor total = a[0] + b[0];
    const at::Tensor part = b[0] / at::where(total.eq(0), at::ones_like(total), total);
    const at::Tensor difference = b[1] - a[1];
    return {total, a[1] + difference * part, a[2] + b[2] + difference.square() * a[0] * part, a[3] + b[3]};
  }

  at::Tensor result(const MetricState& state) const override {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return (1 - state[3] / state[2]).masked_fill(state[2].eq(0), nan).mean();
  }

 private:
  int64_t num_outputs_;
};

}  // namespace

MetricPointer r2(const R2Options& options) { return std::make_shared<R2>(options); }

}  // namespace lockstep::metrics
