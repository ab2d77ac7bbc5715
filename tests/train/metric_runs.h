#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/lockstep.h"

/// Runs of metrics on replicas, for their tests.
namespace lockstep::tests {

using metrics::MetricPointer;

inline Strategy metric_replicas(int replicas) {
  set_logical_devices("CPU", 4);
  std::vector<std::string> names;
  for (int i = 0; i < replicas; ++i) names.push_back("CPU:" + std::to_string(i));
  return MirroredStrategy(names);
}

inline torch::Tensor metric_doubles(const std::vector<double>& values) { return torch::tensor(values, torch::kDouble); }

/// Each replica takes its part of the rows: equal parts; the first ones take the remainder.
inline void accumulate(const MetricAccumulator& accumulator, const Strategy& strategy, const MetricBatch& batch) {
  const int replicas = strategy.num_replicas_in_sync();
  const auto parts = [&](const torch::Tensor& all) { return PerReplica<torch::Tensor>(all.tensor_split(replicas)); };
  if (batch.weights.defined()) {
    strategy.run(
        [&](const torch::Tensor& output, const torch::Tensor& target, const torch::Tensor& weights) {
          accumulator.update({output, target, weights});
        },
        parts(batch.output), parts(batch.target), parts(batch.weights));
  } else {
    strategy.run(
        [&](const torch::Tensor& output, const torch::Tensor& target) {
          accumulator.update({output, target});
        },
        parts(batch.output), parts(batch.target));
  }
}

inline torch::Tensor result_of(const MetricPointer& metric, const std::vector<MetricBatch>& batches, int replicas = 1) {
  const Strategy strategy = metric_replicas(replicas);
  const MetricAccumulator accumulator(strategy, metric);
  for (const MetricBatch& batch : batches) accumulate(accumulator, strategy, batch);
  return accumulator.result();
}

inline double number_of(const MetricPointer& metric, const MetricBatch& batch) {
  return result_of(metric, {batch}).item<double>();
}

/// A metric with batches that fit it.
struct Measured {
  MetricPointer metric;
  /// Whether results have the same bits for any number of replicas.
  bool is_exact;
  std::function<MetricBatch(int64_t rows)> batch;
};

inline std::vector<Measured> all_measured() {
  const auto scores = [](int64_t rows) { return torch::rand({rows, 5}); };
  const auto classes = [](int64_t rows) { return torch::randint(5, {rows}, torch::kLong); };
  const auto sparse = [=](int64_t rows) { return MetricBatch{scores(rows), classes(rows)}; };
  const auto dense = [=](int64_t rows) { return MetricBatch{scores(rows), torch::rand({rows, 5})}; };
  const auto binary = [=](int64_t rows) { return MetricBatch{scores(rows), torch::randint(2, {rows, 5})}; };
  return {{metrics::mean("mean"), false, dense},
          {metrics::binary_accuracy(), true, binary},
          {metrics::categorical_accuracy(), true, dense},
          {metrics::sparse_categorical_accuracy(), true, sparse},
          {metrics::top_k_accuracy(2), true, sparse},
          {metrics::precision(), true, binary},
          {metrics::recall({.class_id = 2}), true, binary},
          {metrics::auc(), true, binary},
          {metrics::auc({.curve = metrics::AucCurve::PR, .name = "pr"}), true, binary},
          {metrics::confusion_matrix(5), true, sparse},
          {metrics::mse(), false, dense},
          {metrics::mae(), false, dense},
          {metrics::r2({.num_outputs = 5}), false, dense},
          {metrics::perplexity(), false, sparse}};
}

}  // namespace lockstep::tests
