// Metrics over replicas and workers, in runs and in pure steps, under every strategy.

#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/device/captured_graph.h"
#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

struct MetricUse {
  metrics::MetricPointer metric;
  /// Whether targets are class indices; otherwise they are 0 or 1 for each output.
  bool takes_classes;
  bool takes_weights = false;
};

/// Each of them with weights and without.
std::vector<MetricUse> used_metrics() {
  std::vector<MetricUse> uses{{metrics::sparse_categorical_accuracy(), true},
                              {metrics::top_k_accuracy(2), true},
                              {metrics::confusion_matrix(3), true},
                              {metrics::perplexity(), true},
                              {metrics::mean("mean"), false},
                              {metrics::binary_accuracy(), false},
                              {metrics::categorical_accuracy(), false},
                              {metrics::precision({.class_id = 1}), false},
                              {metrics::recall(), false},
                              {metrics::auc(), false},
                              {metrics::mse(), false},
                              {metrics::mae(), false},
                              {metrics::r2({.num_outputs = 3}), false}};
  const size_t without_weights = uses.size();
  for (size_t i = 0; i < without_weights; ++i) uses.push_back({uses[i].metric, uses[i].takes_classes, true});
  return uses;
}

class MetricsTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  MetricsTest() : named(GetParam()), strategy(named.make()) {
    for (const MetricUse& use : used_metrics()) {
      all.emplace_back(strategy, use.metric);
      alone.emplace_back(get_strategy(), use.metric);
    }
  }

  static torch::Tensor outputs(int call, int64_t rows) {
    return torch::arange(rows * 3, torch::kFloat).view({rows, 3}).add(call).sin().abs();
  }
  static torch::Tensor classes(int call, int64_t rows) { return torch::arange(rows).mul(5).add(call).remainder(3); }
  static torch::Tensor bits(int call, int64_t rows) {
    return torch::arange(rows * 3).view({rows, 3}).mul(7).add(call).remainder(5).lt(2).to(torch::kFloat);
  }
  static torch::Tensor weights(int call, int64_t rows) { return torch::arange(rows, torch::kFloat).add(call + 0.25); }

  static void update(const std::vector<MetricAccumulator>& accumulators, const torch::Tensor& x, const torch::Tensor& y,
                     const torch::Tensor& b, const torch::Tensor& w) {
    const auto uses = used_metrics();
    for (size_t i = 0; i < uses.size(); ++i) {
      accumulators[i].update({x, uses[i].takes_classes ? y : b, uses[i].takes_weights ? w : torch::Tensor()});
    }
  }

  /// Calls `step` with a batch of all replicas, and gives the same rows to the metrics of one.
  template <class Step>
  void call(Step&& step, int number, int64_t rows) const {
    update(alone, outputs(number, rows), classes(number, rows), bits(number, rows), weights(number, rows));
    step(split(named, outputs(number, rows)), split(named, classes(number, rows)), split(named, bits(number, rows)),
         split(named, weights(number, rows)));
  }

  void expect_results_of_one(const std::vector<MetricAccumulator>& accumulators) const {
    for (size_t i = 0; i < accumulators.size(); ++i) {
      const torch::Tensor result = accumulators[i].result();
      const torch::Tensor expected = alone[i].result();
      EXPECT_TRUE(result.is_cpu());
      EXPECT_TRUE(torch::allclose(result, expected, 1e-6, 1e-6))
          << accumulators[i].metric().name() << ": " << result << ", of one replica " << expected;
    }
  }

  NamedStrategy named;
  Strategy strategy;
  std::vector<MetricAccumulator> all;
  std::vector<MetricAccumulator> alone;
};

TEST_P(MetricsTest, ResultsAreThoseOfOneReplica) {
  const auto step = [&](const auto&... parts) {
    strategy.run([&](const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& b,
                     const torch::Tensor& w) { update(all, x, y, b, w); },
                 parts...);
  };
  call(step, 0, 12);
  call(step, 1, 12);
  expect_results_of_one(all);
  for (const auto& accumulators : {all, alone}) {
    for (const MetricAccumulator& each : accumulators) each.reset();
  }
  call(step, 2, 12);
  expect_results_of_one(all);
}

TEST_P(MetricsTest, ReplicasMayHaveFewerRowsOrNone) {
  const auto step = [&](const auto&... parts) {
    strategy.run([&](const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& b,
                     const torch::Tensor& w) { update(all, x, y, b, w); },
                 parts...);
  };
  // Every size is compiled for traced replicas.
  const auto sizes =
      named.is_traced() ? std::vector<int64_t>{7, 1} : std::vector<int64_t>{9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  for (const int64_t rows : sizes) call(step, static_cast<int>(rows), rows);
  expect_results_of_one(all);
}

TEST_P(MetricsTest, PureStepsCountAtEveryCall) {
  auto pure = strategy.pure([&](const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& b,
                                const torch::Tensor& w) { update(all, x, y, b, w); });
  const auto step = [&](const auto&... parts) { pure(parts...); };
  const bool is_recorded = !named.sees_one_copy && !named.stores_on_cpu && !named.has_workers() &&
                           named.is_on_one_device() && detail::why_no_captured_graph(named.device).empty();
  for (int number = 0; number < 6; ++number) call(step, number, 12);
  EXPECT_EQ(pure.is_replayed(), named.is_traced() || is_recorded) << pure.why_not();
  expect_results_of_one(all);
  for (const auto& accumulators : {all, alone}) {
    for (const MetricAccumulator& each : accumulators) each.reset();
  }
  for (int number = 6; number < 12; ++number) call(step, number, 12);
  EXPECT_EQ(pure.is_replayed(), named.is_traced() || is_recorded) << pure.why_not();
  expect_results_of_one(all);
}

TEST_P(MetricsTest, StatesAreLoaded) {
  const auto step_of = [&](const std::vector<MetricAccumulator>& accumulators) {
    return [&](const auto&... parts) {
      strategy.run([&](const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& b,
                       const torch::Tensor& w) { update(accumulators, x, y, b, w); },
                   parts...);
    };
  };
  call(step_of(all), 0, 12);
  std::vector<MetricAccumulator> loaded;
  std::vector<MetricAccumulator> from_one;
  for (size_t i = 0; i < all.size(); ++i) {
    loaded.emplace_back(strategy, used_metrics()[i].metric).load_state(all[i].state());
    from_one.emplace_back(strategy, used_metrics()[i].metric).load_state(alone[i].state());
  }
  expect_results_of_one(loaded);
  expect_results_of_one(from_one);
  call(step_of(loaded), 1, 12);
  expect_results_of_one(loaded);
}

constexpr TpuSize kMetricSizes[] = {{1, 1}, {2, 2}};
INSTANTIATE_TEST_SUITE_P(Strategies, MetricsTest, ::testing::ValuesIn(all_strategies(kMetricSizes)), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
