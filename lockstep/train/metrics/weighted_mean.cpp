#include "lockstep/train/metrics/weighted_mean.h"

#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/train/metrics/metric_inputs.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

/// Booleans are counted in integers.
at::Tensor sum_of(const at::Tensor& values) {
  return values.scalar_type() == at::kBool ? values.sum() : values.sum(at::kDouble);
}

class MeanOfOutputs final : public WeightedMean {
 public:
  using WeightedMean::WeightedMean;

 protected:
  void check(const MetricBatch& batch) const override {
    LOCKSTEP_CHECK_VALUE(!batch.output.is_complex(), "[metrics] the output must be real: metric=", name(),
                         ", output=", batch.output.sizes());
  }
  at::Tensor values(const MetricBatch& batch) const override { return batch.output; }
};

class MeanError final : public WeightedMean {
 public:
  MeanError(std::string name, bool squared) : WeightedMean(std::move(name)), squared_(squared) {}

 protected:
  void check(const MetricBatch& batch) const override { check_same_shapes(*this, batch); }
  at::Tensor values(const MetricBatch& batch) const override {
    const at::Tensor difference = batch.output.to(at::kDouble) - batch.target.to(at::kDouble);
    return squared_ ? difference * difference : difference.abs();
  }

 private:
  bool squared_;
};

class Perplexity final : public WeightedMean {
 public:
  explicit Perplexity(const PerplexityOptions& options)
      : WeightedMean(options.name), ignore_index_(options.ignore_index) {}

  at::Tensor result(const MetricState& state) const override { return WeightedMean::result(state).exp(); }

 protected:
  void check(const MetricBatch& batch) const override {
    check_scores(*this, batch);
    check_class_indices(*this, batch);
  }
  at::Tensor values(const MetricBatch& batch) const override {
    const at::Tensor targets = class_indices(batch);
    const at::Tensor logits = not_narrow(batch.output).reshape({-1, batch.output.size(-1)});
    const at::Tensor each = at::nll_loss(at::log_softmax(logits, 1), targets.reshape({-1}).to(at::kLong), {},
                                         at::Reduction::None, ignore_index_);
    return each.view(targets.sizes());
  }
  at::Tensor counted(const MetricBatch& batch) const override { return class_indices(batch).ne(ignore_index_); }

 private:
  int64_t ignore_index_;
};

}  // namespace

MetricState WeightedMean::initial() const { return {at::zeros({}, at::kDouble), at::zeros({}, at::kDouble)}; }

MetricState WeightedMean::update(const MetricState& state, const MetricBatch& batch) const {
  check(batch);
  check_weights(*this, batch);
  const at::Tensor each = values(batch);
  const at::Tensor counted = this->counted(batch);
  if (!batch.weights.defined()) {
    // Values that do not count are 0.
    const at::Tensor total = state[0].add_(sum_of(each));
    if (counted.defined()) return {total, state[1].add_(counted.sum())};
    return {total, state[1].add_(static_cast<double>(each.numel()))};
  }
  at::Tensor weights = element_weights(batch.weights, each);
  if (counted.defined()) weights = weights * counted;
  return {state[0] + weighted_values(each, weights).sum(), state[1] + weights.sum()};
}

at::Tensor WeightedMean::result(const MetricState& state) const { return state[0] / state[1]; }

MetricPointer mean(const std::string& name) { return std::make_shared<MeanOfOutputs>(name); }
MetricPointer mse(const std::string& name) { return std::make_shared<MeanError>(name, /*squared=*/true); }
MetricPointer mae(const std::string& name) { return std::make_shared<MeanError>(name, /*squared=*/false); }
MetricPointer perplexity(const PerplexityOptions& options) { return std::make_shared<Perplexity>(options); }

}  // namespace lockstep::metrics
