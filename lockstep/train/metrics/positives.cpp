#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/train/metrics/metric_inputs.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

at::Tensor no_count() { return at::zeros({}, at::kLong); }

/// Of targets that are neither 0 nor 1.
at::Tensor is_no_truth(const at::Tensor& targets) { return targets.mul(targets).ne(targets); }

/// Precision or recall. The state: how often both were positive, how often only the output (or only the target) was,
/// and the number of targets that are neither 0 nor 1.
class PositiveRate final : public Metric {
 public:
  enum class Of { Outputs, Targets };

  PositiveRate(Of of, const PositiveOptions& options, const char* name)
      : Metric(options.name.empty() ? name : options.name),
        of_(of),
        threshold_(options.threshold),
        class_id_(options.class_id) {
    LOCKSTEP_CHECK_VALUE(std::isfinite(threshold_), "[", name,
                         "] the threshold must be a number: threshold=", threshold_);
    LOCKSTEP_CHECK_VALUE(class_id_.value_or(0) >= 0, "[", name,
                         "] there is no such class: class_id=", class_id_.value_or(0));
  }

  MetricState initial() const override { return {at::zeros({}, at::kDouble), at::zeros({}, at::kDouble), no_count()}; }

  MetricState update(const MetricState& state, const MetricBatch& batch) const override {
    check_same_shapes(*this, batch);
    check_weights(*this, batch);
    LOCKSTEP_CHECK_VALUE(!class_id_ || (batch.output.dim() > 1 && batch.output.size(-1) > *class_id_),
                         "[metrics] the last dimension must have the class: metric=", name(),
                         ", class_id=", class_id_.value_or(0), ", output=", batch.output.sizes());
    const at::Tensor outputs = class_id_ ? batch.output.select(-1, *class_id_) : batch.output;
    const at::Tensor targets = class_id_ ? batch.target.select(-1, *class_id_) : batch.target;
    const at::Tensor found = outputs.gt(threshold_);
    const at::Tensor truth = targets.ne(0);
    const at::Tensor both = found.logical_and(truth);
    const at::Tensor one = (of_ == Of::Outputs ? found : truth).logical_xor(both);
    const at::Tensor wrong = state[2] + count_weighted(is_no_truth(targets), batch.weights);
    if (!batch.weights.defined()) return {state[0] + both.sum(), state[1] + one.sum(), wrong};
    const at::Tensor weights = element_weights(batch.weights, outputs);
    return {state[0] + weights.mul(both).sum(), state[1] + weights.mul(one).sum(), wrong};
  }

  at::Tensor result(const MetricState& state) const override {
    LOCKSTEP_CHECK_VALUE(state[2].item<int64_t>() == 0, "[metrics] targets must be 0 or 1: metric=", name(),
                         ", other targets=", state[2].item<int64_t>());
    const at::Tensor all = state[0] + state[1];
    return all.item<double>() == 0 ? at::zeros({}, at::kDouble) : state[0] / all;
  }

 private:
  Of of_;
  double threshold_;
  std::optional<int64_t> class_id_;
};

/// The numbers of positive targets, or of negative ones, whose output is above each threshold.
std::vector<double> above_thresholds(const at::Tensor& buckets) {
  std::vector<double> above(static_cast<size_t>(buckets.numel()) + 1, 0.0);
  const at::Tensor counts = buckets.contiguous();
  for (int64_t i = counts.numel() - 1; i >= 0; --i) {
    above[static_cast<size_t>(i)] = above[static_cast<size_t>(i) + 1] + counts.data_ptr<double>()[i];
  }
  return above;
}

double area_of_roc(const std::vector<double>& true_positives, const std::vector<double>& false_positives) {
  double area = 0;
  for (size_t i = 0; i + 1 < true_positives.size(); ++i) {
    area += (false_positives[i] - false_positives[i + 1]) * (true_positives[i] + true_positives[i + 1]) / 2;
  }
  return area / false_positives[0] / true_positives[0];
}

/// Davis and Goadrich, "The relationship between Precision-Recall and ROC curves" (2006), as Keras has it: between two
/// thresholds the true positives grow in proportion to the positives.
double area_of_pr(const std::vector<double>& true_positives, const std::vector<double>& false_positives) {
  double area = 0;
  for (size_t i = 0; i + 1 < true_positives.size(); ++i) {
    const double positives = true_positives[i] + false_positives[i];
    const double next_positives = true_positives[i + 1] + false_positives[i + 1];
    if (positives <= next_positives) continue;
    const double found = true_positives[i] - true_positives[i + 1];
    const double slope = found / (positives - next_positives);
    const double intercept = true_positives[i + 1] - slope * next_positives;
    const double ratio = next_positives > 0 ? positives / next_positives : 1;
    area += slope * (found + intercept * std::log(ratio));
  }
  return area / true_positives[0];
}

/// The state: for the buckets between two thresholds, the positive and the negative targets whose output is there; and
/// the number of elements that are not allowed.
class AreaUnderCurve final : public Metric {
 public:
  explicit AreaUnderCurve(const AucOptions& options)
      : Metric(options.name),
        curve_(options.curve),
        num_buckets_(options.num_thresholds - 1),
        from_logits_(options.from_logits) {
    LOCKSTEP_CHECK_VALUE(options.num_thresholds >= 2,
                         "[auc] there must be at least two thresholds: num_thresholds=", options.num_thresholds);
  }

  MetricState initial() const override {
    return {at::zeros({num_buckets_}, at::kDouble), at::zeros({num_buckets_}, at::kDouble), no_count()};
  }

  MetricState update(const MetricState& state, const MetricBatch& batch) const override {
    check_same_shapes(*this, batch);
    check_weights(*this, batch);
    const at::Tensor given = batch.output.to(at::kDouble);
    const at::Tensor outputs = from_logits_ ? given.sigmoid() : given;
    const at::Tensor is_allowed = outputs.ge(0).logical_and(outputs.le(1));
    const at::Tensor truth = batch.target.ne(0);
    const at::Tensor bucket = at::where(is_allowed, outputs, at::zeros({}, outputs.options()))
                                  .mul(static_cast<double>(num_buckets_))
                                  .ceil()
                                  .sub(1)
                                  .clamp_min(0)
                                  .to(at::kLong)
                                  .reshape({-1});
    const at::Tensor weights = element_weights_or_ones(batch.weights, outputs);
    const at::Tensor positive = weights.mul(truth).reshape({-1});
    const at::Tensor negative = weights.mul(truth.logical_not()).reshape({-1});
    const at::Tensor is_wrong = is_no_truth(batch.target).logical_or(is_allowed.logical_not());
    const at::Tensor wrong = count_weighted(is_wrong, batch.weights);
    return {state[0].index_add(0, bucket, positive), state[1].index_add(0, bucket, negative), state[2] + wrong};
  }

  at::Tensor result(const MetricState& state) const override {
    LOCKSTEP_CHECK_VALUE(state[2].item<int64_t>() == 0,
                         "[auc] outputs must be in [0, 1], and targets 0 or 1: metric=", name(),
                         ", others=", state[2].item<int64_t>(), "; for logits set from_logits");
    const std::vector<double> true_positives = above_thresholds(state[0]);
    const std::vector<double> false_positives = above_thresholds(state[1]);
    const bool is_defined = true_positives[0] > 0 && (curve_ == AucCurve::PR || false_positives[0] > 0);
    if (!is_defined) return at::scalar_tensor(std::numeric_limits<double>::quiet_NaN(), at::kDouble);
    const auto area = curve_ == AucCurve::PR ? area_of_pr : area_of_roc;
    return at::scalar_tensor(area(true_positives, false_positives), at::kDouble);
  }

 private:
  AucCurve curve_;
  int64_t num_buckets_;
  bool from_logits_;
};

}  // namespace

MetricPointer precision(const PositiveOptions& options) {
  return std::make_shared<PositiveRate>(PositiveRate::Of::Outputs, options, "precision");
}
MetricPointer recall(const PositiveOptions& options) {
  return std::make_shared<PositiveRate>(PositiveRate::Of::Targets, options, "recall");
}
MetricPointer auc(const AucOptions& options) { return std::make_shared<AreaUnderCurve>(options); }

}  // namespace lockstep::metrics
