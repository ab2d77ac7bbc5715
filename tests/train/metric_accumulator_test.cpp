// Metrics on replicas: exactness, metrics of users, errors and state.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/support/message_of.h"
#include "tests/train/metric_runs.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MetricReplicas, ResultsAreThoseOfOneReplica) {
  torch::manual_seed(3);
  for (const Measured& measured : all_measured()) {
    for (int64_t rows = 0; rows <= 9; ++rows) {
      std::vector<MetricBatch> batches{measured.batch(rows), measured.batch(0), measured.batch(9 - rows)};
      const auto expected = result_of(measured.metric, batches);
      for (int replicas = 2; replicas <= 4; ++replicas) {
        const auto result = result_of(measured.metric, batches, replicas);
        EXPECT_TRUE(measured.is_exact ? torch::equal(result, expected) : torch::allclose(result, expected, 1e-13, 0))
            << measured.metric->name() << ", rows " << rows << ", replicas " << replicas << ": " << result
            << ", of one replica " << expected;
      }
    }
  }
}

TEST(MetricReplicas, WeightsAreThoseOfOneReplica) {
  torch::manual_seed(4);
  for (const Measured& measured : all_measured()) {
    MetricBatch batch = measured.batch(7);
    batch.weights = torch::rand({7}, torch::kDouble);
    const auto expected = result_of(measured.metric, {batch});
    for (int replicas = 2; replicas <= 4; ++replicas) {
      EXPECT_TRUE(torch::allclose(result_of(measured.metric, {batch}, replicas), expected, 1e-12, 0))
          << measured.metric->name() << ", replicas " << replicas;
    }
    // Weights that are all 1 change nothing; those that are integers are repetitions.
    batch.weights = torch::ones({7});
    const MetricBatch plain{batch.output, batch.target};
    EXPECT_TRUE(torch::allclose(result_of(measured.metric, {batch}), result_of(measured.metric, {plain}), 1e-13, 0))
        << measured.metric->name();
    batch.weights = torch::tensor({2, 2, 2, 0, 0, 1, 1}, torch::kHalf);
    const auto repeated = torch::tensor({0, 0, 1, 1, 2, 2, 5, 6});
    const MetricBatch repetitions{batch.output.index_select(0, repeated), batch.target.index_select(0, repeated)};
    EXPECT_TRUE(
        torch::allclose(result_of(measured.metric, {batch}), result_of(measured.metric, {repetitions}), 1e-12, 0))
        << measured.metric->name();
  }
}

TEST(MetricReplicas, HalfPrecision) {
  torch::manual_seed(5);
  for (const Measured& measured : all_measured()) {
    for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
      MetricBatch batch = measured.batch(6);
      batch.output = batch.output.to(dtype);
      const MetricBatch single{batch.output.to(torch::kFloat), batch.target};
      EXPECT_TRUE(torch::equal(result_of(measured.metric, {batch}, 2), result_of(measured.metric, {single}, 2)))
          << measured.metric->name() << " " << dtype;
    }
  }
}

/// The example in the header.
class MaxError final : public Metric {
 public:
  MaxError() : Metric("max_error") {}
  MetricState initial() const override { return {torch::zeros({})}; }
  MetricState update(const MetricState& state, const MetricBatch& batch) const override {
    const auto errors = (batch.output - batch.target).abs().flatten();
    return {torch::cat({state[0].view(1), errors}).max()};
  }
  MetricState merge(const MetricState& a, const MetricState& b) const override { return {torch::maximum(a[0], b[0])}; }
  torch::Tensor result(const MetricState& state) const override { return state[0]; }
};

/// Returns other tensors than a state may have.
class OddMetric final : public Metric {
 public:
  explicit OddMetric(MetricState after) : Metric("odd"), after_(std::move(after)) {}
  MetricState initial() const override { return {torch::zeros({}), torch::ones({})}; }
  MetricState update(const MetricState& state, const MetricBatch&) const override {
    return after_.empty() ? MetricState{state[1], state[0]} : after_;
  }
  torch::Tensor result(const MetricState& state) const override { return torch::stack(state); }

 private:
  MetricState after_;
};

TEST(UserMetrics, MayMergeInTheirOwnWay) {
  const auto outputs = torch::tensor({1.0F, 2.0F, -9.0F, 4.0F, 5.0F});
  for (int replicas = 1; replicas <= 4; ++replicas) {
    const auto result = result_of(std::make_shared<MaxError>(), {{outputs, torch::zeros({5})}}, replicas);
    EXPECT_EQ(result.item<float>(), 9) << replicas;
  }
}

TEST(UserMetrics, MayExchangeTheirTensors) {
  const Strategy strategy = metric_replicas(1);
  const MetricAccumulator accumulator(strategy, std::make_shared<OddMetric>(MetricState{}));
  strategy.run([&] { accumulator.update({torch::ones({1}), torch::ones({1})}); });
  const State state = accumulator.state();
  EXPECT_EQ(state.tensor("copies_0").read().item<float>(), 1);
  EXPECT_EQ(state.tensor("copies_1").read().item<float>(), 0);
}

TEST(UserMetrics, KeepShapesAndDtypes) {
  const auto update = [](const MetricState& after) {
    return [after] { result_of(std::make_shared<OddMetric>(after), {{torch::ones({1}), torch::ones({1})}}); };
  };
  EXPECT_THAT(message_of<c10::ValueError>(update({torch::zeros({})})), HasSubstr("initial=2, update=1"));
  EXPECT_THAT(message_of<c10::ValueError>(update({torch::zeros({}), torch::zeros({2})})), HasSubstr("[2]"));
  EXPECT_THAT(message_of<c10::ValueError>(update({torch::zeros({}), torch::zeros({}, torch::kLong)})),
              AllOf(HasSubstr("float32"), HasSubstr("int64"), HasSubstr("odd")));
}

TEST(MetricErrors, Arguments) {
  EXPECT_THROW(metrics::mean(""), c10::ValueError);
  EXPECT_THROW(metrics::mean("a.b"), c10::ValueError);
  EXPECT_THAT(message_of<c10::ValueError>([] { metrics::top_k_accuracy(0); }), HasSubstr("k=0"));
  EXPECT_THAT(message_of<c10::ValueError>([] { metrics::auc({.num_thresholds = 1}); }), HasSubstr("thresholds=1"));
  EXPECT_THAT(message_of<c10::ValueError>([] { metrics::confusion_matrix(0); }), HasSubstr("num_classes=0"));
  EXPECT_THAT(message_of<c10::ValueError>([] { metrics::r2({.num_outputs = 0}); }), HasSubstr("num_outputs=0"));
  EXPECT_THAT(message_of<c10::ValueError>([] { metrics::recall({.class_id = -1}); }), HasSubstr("class_id=-1"));
  EXPECT_THROW(metrics::binary_accuracy({.threshold = std::nan("")}), c10::ValueError);
  EXPECT_THROW(MetricAccumulator(metric_replicas(2), nullptr), c10::ValueError);
}

TEST(MetricErrors, ShapesAndDtypes) {
  const auto message = [](const MetricPointer& metric, const MetricBatch& batch) {
    return message_of<c10::ValueError>([&] { number_of(metric, batch); });
  };
  const auto scores = torch::zeros({4, 3});
  const auto indices = torch::zeros({4}, torch::kLong);
  const auto both_shapes = AllOf(HasSubstr("[4, 1]"), HasSubstr("[4]"));
  for (const auto& metric : {metrics::binary_accuracy(), metrics::precision(), metrics::auc(), metrics::mse(),
                             metrics::mae(), metrics::r2()}) {
    EXPECT_THAT(message(metric, {torch::zeros({4, 1}), torch::zeros({4})}), both_shapes) << metric->name();
    const Strategy strategy = metric_replicas(1);
    const MetricAccumulator accumulator(strategy, metric);
    const auto update = [&](const MetricBatch& batch) { strategy.run([&] { accumulator.update(batch); }); };
    EXPECT_THAT(message_of<c10::ValueError>([&] { update({torch::zeros({4}), {}}); }), HasSubstr(metric->name()));
    EXPECT_THAT(message_of<c10::ValueError>([&] { update({{}, torch::zeros({4})}); }), HasSubstr(metric->name()));
  }
  for (const auto& metric : {metrics::sparse_categorical_accuracy(), metrics::top_k_accuracy(1),
                             metrics::confusion_matrix(3), metrics::perplexity()}) {
    EXPECT_THAT(message(metric, {scores, torch::zeros({4})}), HasSubstr("float32")) << metric->name();
    EXPECT_THAT(message(metric, {scores, torch::zeros({3}, torch::kLong)}), HasSubstr("[3]")) << metric->name();
    EXPECT_THAT(message(metric, {scores, indices, torch::ones({4, 1})}), HasSubstr("weights=[4, 1]")) << metric->name();
    EXPECT_THAT(message(metric, {scores, indices, torch::ones({1})}), HasSubstr("weights=[1]")) << metric->name();
  }
  EXPECT_THAT(message(metrics::categorical_accuracy(), {scores, indices}), HasSubstr("[4, 3]"));
  EXPECT_THAT(message(metrics::sparse_categorical_accuracy(), {indices, indices}), HasSubstr("int64"));
  EXPECT_THAT(message(metrics::confusion_matrix(4), {scores, indices}), HasSubstr("num_classes=4"));
  EXPECT_THAT(message(metrics::recall({.class_id = 3}), {scores, scores}), HasSubstr("class_id=3"));
  EXPECT_THAT(message(metrics::r2({.num_outputs = 2}), {scores, scores}), HasSubstr("num_outputs=2"));
}

TEST(MetricErrors, ValuesThatAreNotAllowed) {
  const auto message = [](const MetricPointer& metric, const MetricBatch& batch) {
    return message_of<c10::ValueError>([&] { result_of(metric, {batch}, 2); });
  };
  const auto three = torch::tensor({0, 3, 1});
  EXPECT_THAT(message(metrics::confusion_matrix(3), {three, three}), HasSubstr("others=1"));
  EXPECT_THAT(message(metrics::confusion_matrix(3), {torch::rand({3, 3}), -three}), HasSubstr("others=2"));
  const auto scores = torch::tensor({0.5, 2.0, std::nan("")});
  EXPECT_THAT(message(metrics::auc(), {scores, torch::ones({3})}), HasSubstr("others=2"));
  EXPECT_THAT(message(metrics::auc(), {torch::rand({3}), three}), HasSubstr("others=1"));
  EXPECT_THAT(message(metrics::precision(), {scores, torch::tensor({-1, 1, -1})}), HasSubstr("other targets=2"));
}

TEST(MetricErrors, Contexts) {
  const Strategy strategy = metric_replicas(2);
  const MetricAccumulator loss(strategy, metrics::mean("loss"));
  EXPECT_THAT(message_of<ContextError>([&] {
                loss.update({torch::ones({1}), {}});
              }),
              AllOf(HasSubstr("loss"), HasSubstr("MirroredStrategy"), HasSubstr("inside `run`")));
  EXPECT_THROW(strategy.run([&] { loss.result(); }), ContextError);
  EXPECT_THROW(strategy.run([&] { loss.reset(); }), ContextError);
  EXPECT_THROW(strategy.run([&] { loss.state(); }), ContextError);
  EXPECT_THROW(strategy.run([&] { MetricAccumulator(strategy, metrics::mean("inside")); }), ContextError);
  EXPECT_THROW(metric_replicas(1).run([&] { loss.update({torch::ones({1}), {}}); }), ContextError);
}

TEST(MetricAccumulators, RecordNothingForAutograd) {
  const Strategy strategy = metric_replicas(2);
  const MetricAccumulator loss(strategy, metrics::mean("loss"));
  const auto weight = torch::ones({2}, torch::requires_grad());
  strategy.run([&] { loss.update({weight * 2, {}}); });
  EXPECT_FALSE(loss.result().requires_grad());
  EXPECT_EQ(loss.result().item<double>(), 2);
}

TEST(MetricAccumulators, StartAgain) {
  const Strategy strategy = metric_replicas(3);
  const MetricAccumulator loss(strategy, metrics::mean("loss"));
  const MetricAccumulator same = loss;
  strategy.run([&] { loss.update({torch::full({2}, 3.0), {}}); });
  const auto first = same.result();
  same.reset();
  EXPECT_TRUE(std::isnan(loss.result().item<double>()));
  strategy.run([&] { loss.update({torch::full({2}, 5.0), {}}); });
  EXPECT_EQ(loss.result().item<double>(), 5);
  EXPECT_EQ(first.item<double>(), 3) << "a result is not changed later";
}

TEST(MetricAccumulators, WithoutAStrategy) {
  const MetricAccumulator loss(get_strategy(), metrics::mean("loss"));
  loss.update({metric_doubles({1, 2}), {}});
  loss.update({metric_doubles({6}), {}});
  EXPECT_EQ(loss.result().item<double>(), 3);
}

TEST(MetricStates, AreTakenByAnyNumberOfReplicas) {
  torch::manual_seed(6);
  for (const Measured& measured : all_measured()) {
    const Strategy two = metric_replicas(2);
    const MetricAccumulator saved(two, measured.metric);
    accumulate(saved, two, measured.batch(5));
    const State state = saved.state();
    const auto expected = saved.result();
    const MetricBatch more = measured.batch(5);
    accumulate(saved, two, more);
    for (const int replicas : {1, 2, 3}) {
      const Strategy strategy = metric_replicas(replicas);
      const MetricAccumulator loaded(strategy, measured.metric);
      accumulate(loaded, strategy, measured.batch(3));
      loaded.load_state(state);
      EXPECT_TRUE(torch::equal(loaded.result(), expected)) << measured.metric->name() << " " << replicas;
      for (const auto& [name, value] : loaded.state()) {
        const auto copies = std::get<StateTensor>(value).read();
        const auto before = state.tensor(name).read();
        ASSERT_EQ(copies.size(0), replicas);
        const bool is_kept = replicas != 2 || torch::equal(copies, before);
        const bool others_are_initial = replicas != 3 || copies.slice(0, 1).eq(0).all().item<bool>();
        EXPECT_TRUE(is_kept && others_are_initial) << measured.metric->name() << " " << name << " " << replicas;
      }
      accumulate(loaded, strategy, more);
      EXPECT_TRUE(torch::allclose(loaded.result(), saved.result(), 1e-12, 0)) << measured.metric->name();
    }
  }
}

TEST(MetricStates, OfAnotherMetricAreRefused) {
  const Strategy strategy = metric_replicas(2);
  const MetricAccumulator matrix(strategy, metrics::confusion_matrix(3));
  const auto load = [&](const MetricPointer& of) { matrix.load_state(MetricAccumulator(strategy, of).state()); };
  EXPECT_THAT(message_of<c10::ValueError>([&] { load(metrics::confusion_matrix(4)); }),
              AllOf(HasSubstr("[3, 3]"), HasSubstr("[2, 4, 4]")));
  EXPECT_THROW(load(metrics::mse()), c10::ValueError);
  EXPECT_THROW(load(metrics::auc()), c10::ValueError);
  EXPECT_THROW(matrix.load_state({}), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::tests
