// Metrics: values of Keras's own documentation and tests, and others computed by hand.

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/train/metric_runs.h"

namespace lockstep::tests {
namespace {

TEST(MetricValues, Means) {
  const auto values = metric_doubles({1, 3, 5, 7});
  EXPECT_EQ(number_of(metrics::mean("loss"), {values, values}), 4);
  EXPECT_EQ(number_of(metrics::mean("loss"), {values, values, metric_doubles({1, 1, 0, 0})}), 2);
  EXPECT_EQ(metrics::mean("loss")->name(), "loss");
  // One scalar for each replica.
  const Strategy strategy = metric_replicas(2);
  const MetricAccumulator loss(strategy, metrics::mean("loss"));
  strategy.run(
      [&](const torch::Tensor& x) {
        loss.update({x.sum(), {}, torch::tensor(3.0)});
      },
      PerReplica<torch::Tensor>({torch::tensor({1.0, 2.0}), torch::tensor({4.0, 5.0})}));
  EXPECT_EQ(loss.result().item<double>(), 6);
}

TEST(MetricValues, BinaryAccuracy) {
  const auto outputs = torch::tensor({0.98, 1.0, 0.0, 0.6}).view({4, 1});
  const auto targets = torch::tensor({1, 1, 0, 0}).view({4, 1});
  EXPECT_EQ(number_of(metrics::binary_accuracy(), {outputs, targets}), 0.75);
  EXPECT_EQ(number_of(metrics::binary_accuracy(), {outputs, targets, torch::tensor({1, 0, 0, 1})}), 0.5);
  EXPECT_EQ(number_of(metrics::binary_accuracy({.threshold = 0.7}), {outputs, targets}), 1);
  // Rows of several elements: each element has the weight of its row.
  const auto rows = torch::tensor({0.9, 0.2, 0.3, 0.4}).view({2, 2});
  const auto truth = torch::tensor({1.0, 1.0, 0.0, 0.0}).view({2, 2});
  EXPECT_DOUBLE_EQ(number_of(metrics::binary_accuracy(), {rows, truth, torch::tensor({3.0, 1.0})}), 5.0 / 8);
}

TEST(MetricValues, CategoricalAccuracies) {
  const auto outputs = torch::tensor({0.1, 0.9, 0.8, 0.05, 0.95, 0.0}).view({2, 3});
  const auto one_hot = torch::tensor({0, 0, 1, 0, 1, 0}).view({2, 3});
  const auto indices = torch::tensor({2, 1});
  const auto weights = metric_doubles({0.7, 0.3});
  EXPECT_EQ(number_of(metrics::categorical_accuracy(), {outputs, one_hot}), 0.5);
  EXPECT_DOUBLE_EQ(number_of(metrics::categorical_accuracy(), {outputs, one_hot, weights}), 0.3);
  for (const auto& targets : {indices, indices.view({2, 1}), indices.to(torch::kByte)}) {
    EXPECT_EQ(number_of(metrics::sparse_categorical_accuracy(), {outputs, targets}), 0.5);
    EXPECT_DOUBLE_EQ(number_of(metrics::sparse_categorical_accuracy(), {outputs, targets, weights}), 0.3);
  }
  EXPECT_EQ(number_of(metrics::sparse_categorical_accuracy(), {outputs, torch::tensor({3, -1})}), 0);
  // Tokens: [rows, length, classes].
  const auto tokens = torch::cat({outputs, outputs}).view({2, 2, 3});
  const auto of_tokens = torch::tensor({1, 1, 2, 1}).view({2, 2});
  EXPECT_EQ(number_of(metrics::sparse_categorical_accuracy(), {tokens, of_tokens}), 0.75);
  EXPECT_DOUBLE_EQ(number_of(metrics::sparse_categorical_accuracy(), {tokens, of_tokens, weights}), 0.85);
}

TEST(MetricValues, TopK) {
  const auto outputs = torch::tensor({0.1, 0.9, 0.8, 0.05, 0.95, 0.0}).view({2, 3});
  const auto indices = torch::tensor({2, 1});
  const auto one_hot = torch::tensor({0, 0, 1, 0, 1, 0}).view({2, 3});
  for (const auto& targets : {indices, one_hot}) {
    EXPECT_EQ(number_of(metrics::top_k_accuracy(1), {outputs, targets}), 0.5);
    EXPECT_DOUBLE_EQ(number_of(metrics::top_k_accuracy(1), {outputs, targets, metric_doubles({0.7, 0.3})}), 0.3);
    EXPECT_EQ(number_of(metrics::top_k_accuracy(2), {outputs, targets}), 1);
  }
  EXPECT_EQ(number_of(metrics::top_k_accuracy(5), {outputs, torch::tensor({3, -1})}), 0);
  const double nan = std::nan("");
  const double inf = HUGE_VAL;
  const auto odd = metric_doubles({nan, 1, 2, -inf, 1, 2, 1, 1, 1}).view({3, 3});
  EXPECT_EQ(number_of(metrics::top_k_accuracy(9), {odd, torch::tensor({0, 0, 2})}), 2.0 / 3) << "NaN is never right";
  EXPECT_EQ(number_of(metrics::top_k_accuracy(1), {odd, torch::tensor({2, 2, 2})}), 2.0 / 3) << "equal ones are";
}

TEST(MetricValues, PrecisionAndRecall) {
  const auto outputs = torch::tensor({1.0, 0.0, 1.0, 1.0});
  const auto targets = torch::tensor({0, 1, 1, 1});
  const auto weights = torch::tensor({0.0, 0.0, 1.0, 0.0});
  EXPECT_DOUBLE_EQ(number_of(metrics::precision(), {outputs, targets}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(number_of(metrics::recall(), {outputs, targets}), 2.0 / 3);
  EXPECT_EQ(number_of(metrics::precision(), {outputs, targets, weights}), 1);
  EXPECT_EQ(number_of(metrics::recall(), {outputs, targets, weights}), 1);
  const auto scores = torch::tensor({0.2, 0.4, 0.6, 0.8});
  EXPECT_EQ(number_of(metrics::precision({.threshold = 0.9}), {scores, targets}), 0) << "no positive output";
  EXPECT_DOUBLE_EQ(number_of(metrics::recall({.threshold = 0.5}), {scores, targets}), 2.0 / 3);
  EXPECT_EQ(number_of(metrics::recall(), {scores, torch::zeros({4})}), 0) << "no positive target";
  // Only the second class counts: found in rows 0 and 2, true in rows 0 and 1.
  const auto classes = torch::tensor({0.1, 0.9, 0.8, 0.2, 0.3, 0.7}).view({3, 2});
  const auto one_hot = torch::tensor({false, true, false, true, true, false}).view({3, 2});
  EXPECT_EQ(number_of(metrics::precision({.class_id = 1}), {classes, one_hot}), 0.5);
  EXPECT_EQ(number_of(metrics::recall({.class_id = 1, .name = "found"}), {classes, one_hot}), 0.5);
  EXPECT_EQ(metrics::recall()->name(), "recall");
  EXPECT_EQ(metrics::recall({.name = "found"})->name(), "found");
}

TEST(MetricValues, AreaUnderCurves) {
  const auto outputs = torch::tensor({0.0, 0.5, 0.3, 0.9});
  const auto targets = torch::tensor({0, 0, 1, 1});
  const auto weights = torch::tensor({1, 2, 3, 4});
  const auto area = [&](metrics::AucCurve curve, int64_t thresholds, const torch::Tensor& given) {
    return number_of(metrics::auc({.curve = curve, .num_thresholds = thresholds}), {outputs, targets, given});
  };
  EXPECT_DOUBLE_EQ(area(metrics::AucCurve::ROC, 3, {}), 0.75);
  EXPECT_DOUBLE_EQ(area(metrics::AucCurve::ROC, 3, weights), (1 + 4.0 / 7) / 2);
  EXPECT_DOUBLE_EQ(area(metrics::AucCurve::ROC, 3, torch::tensor({1, 0, 0, 1})), 1);
  EXPECT_NEAR(area(metrics::AucCurve::PR, 3, weights), 0.916613, 1e-6);
  // With 200 thresholds all four outputs differ: of four pairs three are in order.
  EXPECT_DOUBLE_EQ(area(metrics::AucCurve::ROC, 200, {}), 0.75);
  EXPECT_DOUBLE_EQ(area(metrics::AucCurve::ROC, 2, {}), 0.5);
  const auto logits = torch::tensor({-3.0, 0.1, -0.1, 2.0});
  EXPECT_DOUBLE_EQ(number_of(metrics::auc({.from_logits = true}), {logits, targets}), 0.75);
  EXPECT_TRUE(std::isnan(number_of(metrics::auc(), {outputs, torch::ones({4})})));
  EXPECT_TRUE(std::isnan(number_of(metrics::auc({.curve = metrics::AucCurve::PR}), {outputs, torch::zeros({4})})));
  EXPECT_DOUBLE_EQ(number_of(metrics::auc({.curve = metrics::AucCurve::PR}), {outputs, torch::ones({4})}), 1);
}

TEST(MetricValues, ConfusionMatrix) {
  const auto targets = torch::tensor({0, 1, 2, 2, 1});
  const auto found = torch::tensor({0, 2, 2, 1, 1});
  const auto matrix = metric_doubles({1, 0, 0, 0, 1, 1, 0, 1, 1}).view({3, 3});
  EXPECT_TRUE(torch::equal(result_of(metrics::confusion_matrix(3), {{found, targets}}), matrix));
  const auto scores = torch::eye(3).index_select(0, found);
  EXPECT_TRUE(torch::equal(result_of(metrics::confusion_matrix(3), {{scores, targets}}), matrix));
  const auto weighted =
      result_of(metrics::confusion_matrix(3), {{found, targets, torch::tensor({1.0, 2.0, 0.0, 4.0, 0.5})}});
  EXPECT_TRUE(torch::equal(weighted, metric_doubles({1, 0, 0, 0, 0.5, 2, 0, 4, 0}).view({3, 3})));
}

TEST(MetricValues, Regression) {
  const auto targets = torch::tensor({0, 1, 0, 0}).view({2, 2});
  const auto outputs = torch::tensor({1.0, 1.0, 0.0, 0.0}).view({2, 2});
  const auto weights = torch::tensor({1, 0});
  EXPECT_EQ(number_of(metrics::mse(), {outputs, targets}), 0.25);
  EXPECT_EQ(number_of(metrics::mse(), {outputs, targets, weights}), 0.5);
  EXPECT_EQ(number_of(metrics::mae(), {outputs * 3, targets}), 1.25);
  EXPECT_EQ(number_of(metrics::mae(), {outputs, targets, weights}), 0.5);
  const auto heights = torch::tensor({1.0, 4.0, 3.0});
  const auto guesses = torch::tensor({2.0, 4.0, 4.0});
  EXPECT_DOUBLE_EQ(number_of(metrics::r2(), {guesses, heights}), 4.0 / 7);
  EXPECT_DOUBLE_EQ(number_of(metrics::r2(), {guesses.view({3, 1}), heights.view({3, 1})}), 4.0 / 7);
  // Weights 1, 1, 2: the mean is 11/4, the squares 2.75 * ..., as of the rows {1, 4, 3, 3}.
  EXPECT_DOUBLE_EQ(number_of(metrics::r2(), {guesses, heights, torch::tensor({1, 1, 2})}),
                   number_of(metrics::r2(),
                             {torch::cat({guesses, guesses.slice(0, 2)}), torch::cat({heights, heights.slice(0, 2)})}));
  const auto two = torch::stack({heights, heights}, 1);
  EXPECT_DOUBLE_EQ(number_of(metrics::r2({.num_outputs = 2}), {torch::stack({guesses, heights}, 1), two}), 5.5 / 7);
  EXPECT_TRUE(std::isnan(number_of(metrics::r2(), {guesses, torch::ones({3})})));
}

TEST(MetricValues, R2KeepsItsDigitsFarFromZero) {
  const auto targets = torch::arange(100, torch::kDouble).sin();
  const auto outputs = targets + 0.1 * torch::arange(100, torch::kDouble).cos();
  const double near = number_of(metrics::r2(), {outputs, targets});
  for (const int replicas : {1, 3}) {
    const auto far = result_of(metrics::r2(), {{outputs + 1e8, targets + 1e8}}, replicas);
    EXPECT_NEAR(far.item<double>(), near, 1e-6) << replicas;
  }
}

TEST(MetricValues, Perplexity) {
  const auto logits = metric_doubles({0, 0, std::log(3.0), 0, 0, 0, 5, 1, 2}).view({3, 3});
  // Probabilities of the targets: 3/5, 1/3; the third one is ignored.
  const auto targets = torch::tensor({2, 1, -100});
  const double expected = std::exp(-(std::log(0.6) + std::log(1.0 / 3)) / 2);
  EXPECT_NEAR(number_of(metrics::perplexity(), {logits, targets}), expected, 1e-12);
  EXPECT_NEAR(number_of(metrics::perplexity({.ignore_index = 0}), {logits, targets.clamp_min(0)}), expected, 1e-12);
  const double weighted = std::exp(-(3 * std::log(0.6) + std::log(1.0 / 3)) / 4);
  EXPECT_NEAR(number_of(metrics::perplexity(), {logits, targets, torch::tensor({3, 1, 7})}), weighted, 1e-12);
  EXPECT_NEAR(number_of(metrics::perplexity(), {logits.view({1, 3, 3}), targets.view({1, 3})}), expected, 1e-12);
  EXPECT_THROW(number_of(metrics::perplexity(), {logits, torch::tensor({3, 0, 0})}), c10::Error);
}

TEST(MetricValues, NoExamples) {
  const auto nothing = torch::zeros({0, 3});
  const auto no_index = torch::zeros({0}, torch::kLong);
  EXPECT_TRUE(std::isnan(number_of(metrics::sparse_categorical_accuracy(), {nothing, no_index})));
  EXPECT_TRUE(std::isnan(number_of(metrics::r2({.num_outputs = 3}), {nothing, nothing})));
  EXPECT_EQ(number_of(metrics::precision(), {nothing, nothing}), 0);
}

TEST(MetricValues, RowsOfWeightZeroDoNotCount) {
  const double nan = std::nan("");
  const MetricBatch batch{metric_doubles({1, nan, 3}), metric_doubles({2, 2, 5}), metric_doubles({1, 0, 1})};
  EXPECT_EQ(number_of(metrics::mse(), batch), 2.5);
  EXPECT_EQ(number_of(metrics::mean("output"), batch), 2);
  EXPECT_DOUBLE_EQ(number_of(metrics::r2(), batch), 1 - 5 / 4.5);
  // Padding: neither a class nor a truth.
  const auto padded = torch::tensor({1, -1, 0});
  const auto weights = torch::tensor({1, 0, 2});
  EXPECT_TRUE(torch::equal(result_of(metrics::confusion_matrix(2), {{padded, padded, weights}}),
                           metric_doubles({2, 0, 0, 1}).view({2, 2})));
  const auto scores = metric_doubles({0.9, nan, 0.1});
  EXPECT_EQ(number_of(metrics::auc(), {scores, padded, weights}), 1);
  EXPECT_EQ(number_of(metrics::precision(), {scores, padded, weights}), 1);
  EXPECT_EQ(number_of(metrics::recall(), {scores, padded, weights}), 1);
}

}  // namespace
}  // namespace lockstep::tests
