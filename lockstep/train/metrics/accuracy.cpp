#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/train/metrics/metric_inputs.h"
#include "lockstep/train/metrics/metrics.h"
#include "lockstep/train/metrics/weighted_mean.h"

namespace lockstep::metrics {
namespace {

at::Tensor index_of_largest(const at::Tensor& scores) {
  return (scores.scalar_type() == at::kBool ? scores.to(at::kByte) : not_narrow(scores)).argmax(-1);
}

class BinaryAccuracy final : public WeightedMean {
 public:
  explicit BinaryAccuracy(const BinaryAccuracyOptions& options)
      : WeightedMean(options.name), threshold_(options.threshold) {
    LOCKSTEP_CHECK_VALUE(std::isfinite(threshold_),
                         "[binary_accuracy] the threshold must be a number: threshold=", threshold_);
  }

 protected:
  void check(const MetricBatch& batch) const override { check_same_shapes(*this, batch); }
  at::Tensor values(const MetricBatch& batch) const override { return batch.output.gt(threshold_).eq(batch.target); }

 private:
  double threshold_;
};

class CategoricalAccuracy final : public WeightedMean {
 public:
  using WeightedMean::WeightedMean;

 protected:
  void check(const MetricBatch& batch) const override {
    check_scores(*this, batch);
    check_same_shapes(*this, batch);
  }
  at::Tensor values(const MetricBatch& batch) const override {
    return index_of_largest(batch.output).eq(index_of_largest(batch.target));
  }
};

class SparseCategoricalAccuracy final : public WeightedMean {
 public:
  using WeightedMean::WeightedMean;

 protected:
  void check(const MetricBatch& batch) const override {
    check_scores(*this, batch);
    check_class_indices(*this, batch);
  }
  at::Tensor values(const MetricBatch& batch) const override {
    return index_of_largest(batch.output).eq(class_indices(batch));
  }
};

class TopKAccuracy final : public WeightedMean {
 public:
  TopKAccuracy(int64_t k, std::string name) : WeightedMean(std::move(name)), k_(k) {
    LOCKSTEP_CHECK_VALUE(k >= 1, "[top_k_accuracy] at least one class must be looked at: k=", k);
  }

 protected:
  void check(const MetricBatch& batch) const override {
    check_scores(*this, batch);
    if (is_one_hot(batch)) return check_same_shapes(*this, batch);
    check_class_indices(*this, batch);
  }

  at::Tensor values(const MetricBatch& batch) const override {
    const at::Tensor scores = not_narrow(batch.output);
    const int64_t num_classes = scores.size(-1);
    const at::Tensor targets = is_one_hot(batch) ? index_of_largest(batch.target) : class_indices(batch);
    const at::Tensor classes = at::arange(num_classes, scores.options().dtype(at::kLong));
    const at::Tensor is_target = targets.unsqueeze(-1).eq(classes);
    const at::Tensor own = at::where(is_target, scores, at::zeros({}, scores.options())).sum(-1, /*keepdim=*/true);
    // NaN is not "at most" anything: it counts as larger.
    const at::Tensor num_larger = scores.le(own).logical_not().sum(-1);
    return num_larger.lt(std::min(k_, num_classes)).logical_and(is_target.any(-1));
  }

 private:
  static bool is_one_hot(const MetricBatch& batch) {
    return batch.target.sizes() == batch.output.sizes() && batch.output.size(-1) > 1;
  }

  int64_t k_;
};

}  // namespace

MetricPointer binary_accuracy(const BinaryAccuracyOptions& options) {
  return std::make_shared<BinaryAccuracy>(options);
}
MetricPointer categorical_accuracy(const std::string& name) { return std::make_shared<CategoricalAccuracy>(name); }
MetricPointer sparse_categorical_accuracy(const std::string& name) {
  return std::make_shared<SparseCategoricalAccuracy>(name);
}
MetricPointer top_k_accuracy(int64_t k, const std::string& name) { return std::make_shared<TopKAccuracy>(k, name); }

}  // namespace lockstep::metrics
