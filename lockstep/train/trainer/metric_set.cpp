#include "lockstep/train/trainer/metric_set.h"

#include <set>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

/// A sum divided by a number: `output` is the sum, `target` the number of what was summed.
class MeanOfSums final : public Metric {
 public:
  MeanOfSums() : Metric("loss") {}
  MetricState initial() const override { return {at::zeros({}, at::kDouble), at::zeros({}, at::kDouble)}; }
  MetricState update(const MetricState& state, const MetricBatch& batch) const override {
    return {state[0].add_(batch.output), state[1].add_(batch.target)};
  }
  at::Tensor result(const MetricState& state) const override { return state[0] / state[1]; }
};

}  // namespace

MetricSet::MetricSet(const Strategy& strategy, const TrainerOptions& options)
    : loss_(strategy, std::make_shared<MeanOfSums>()) {
  std::set<std::string> names{"loss"};
  const auto add = [&](const TrackedMetric& tracked, bool weighted) {
    LOCKSTEP_CHECK_VALUE(tracked.metric != nullptr, "[Trainer] a metric is null");
    LOCKSTEP_CHECK_VALUE(names.insert(tracked.metric->name()).second,
                         "[Trainer] two metrics have the same name: name=", tracked.metric->name(),
                         "; give one of them another name");
    LOCKSTEP_CHECK_VALUE(tracked.output >= 0,
                         "[Trainer] the output of a metric must not be negative: metric=", tracked.metric->name(),
                         ", output=", tracked.output);
    metrics_.push_back({MetricAccumulator(strategy, tracked.metric), static_cast<size_t>(tracked.output), weighted});
  };
  for (const TrackedMetric& tracked : options.metrics) add(tracked, false);
  for (const TrackedMetric& tracked : options.weighted_metrics) add(tracked, true);
}

void MetricSet::add_loss(const at::Tensor& sum, const at::Tensor& count) const { loss_.update({sum, count}); }

void MetricSet::add(const Outputs& outputs, const Batch& batch, const at::Tensor& weights) const {
  for (const Tracked& tracked : metrics_) {
    LOCKSTEP_CHECK_VALUE(
        tracked.output < outputs.size() && tracked.output < batch.targets.size(),
        "[Trainer] a metric looks at an output that is not there: metric=", tracked.values.metric().name(),
        ", output=", tracked.output, ", outputs=", outputs.size(), ", targets=", batch.targets.size());
    tracked.values.update(
        {outputs[tracked.output].detach(), batch.targets[tracked.output], tracked.weighted ? weights : at::Tensor()});
  }
}

Logs MetricSet::results() const {
  Logs logs{{"loss", loss_.result().item<double>()}};
  for (const Tracked& tracked : metrics_) {
    const at::Tensor result = tracked.values.result();
    if (result.numel() == 1) logs[tracked.values.metric().name()] = result.item<double>();
  }
  return logs;
}

at::Tensor MetricSet::result(const std::string& name) const {
  if (name == "loss") return loss_.result();
  std::string known = "loss";
  for (const Tracked& tracked : metrics_) {
    if (tracked.values.metric().name() == name) return tracked.values.result();
    known += ", " + tracked.values.metric().name();
  }
  LOCKSTEP_CHECK_VALUE(false, "[Trainer::result] there is no such metric: name=", name, "; there are ", known);
  return {};
}

void MetricSet::reset() const {
  loss_.reset();
  for (const Tracked& tracked : metrics_) tracked.values.reset();
}

State MetricSet::state() const {
  State state;
  state.add("loss", loss_.state());
  for (const Tracked& tracked : metrics_) state.add(tracked.values.metric().name(), tracked.values.state());
  return state;
}

void MetricSet::load_state(const State& state) const {
  loss_.load_state(state.below("loss"));
  for (const Tracked& tracked : metrics_) tracked.values.load_state(state.below(tracked.values.metric().name()));
}

}  // namespace lockstep::detail
