#include "lockstep/train/trainer/trainer.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include "tests/support/message_of.h"
#include "tests/train/trainer_fixture.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::all_close;
using tests::make_rows;
using tests::message_of;
using tests::Regression;
using tests::Rows;
using tests::TrainedRegression;

constexpr double kClose = 1e-9;
const FitOptions kQuiet{.verbose = false};

/// Trains by hand with `loss_of(model, x, y)`, one update for each batch.
template <class LossOf, class Before>
std::vector<torch::Tensor> train_alone(const Rows& rows, int64_t batch, int epochs, LossOf loss_of,
                                       Before before_step) {
  torch::manual_seed(3);
  Regression model;
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  int64_t step = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto xs = rows.x.split(batch);
    const auto ys = rows.y.split(batch);
    for (size_t i = 0; i < xs.size(); ++i) {
      sgd.zero_grad();
      loss_of(model, xs[i], ys[i]).backward();
      before_step(model, sgd, step++);
      sgd.step();
    }
  }
  return model->parameters();
}

const auto kMeanSquare = [](Regression& model, const torch::Tensor& x, const torch::Tensor& y) {
  return torch::mse_loss(model->forward(x), y);
};
const auto kNothing = [](auto&, auto&, int64_t) {};

TEST(TrainerUnitTest, AccumulationEqualsTheLargeBatch) {
  const Rows rows = make_rows(23);
  TrainedRegression accumulated({.accumulate = 3});
  const History history = accumulated.trainer.fit(rows.dataset().batch(3), {.epochs = 2, .verbose = false});
  EXPECT_EQ(history.steps, 6);  // 9 + 9 + 5 rows in each epoch
  EXPECT_TRUE(all_close(accumulated.parameters(), train_alone(rows, 9, 2, kMeanSquare, kNothing), kClose));
}

TEST(TrainerUnitTest, CountedLossesAccumulateByTheirCounts) {
  torch::manual_seed(7);
  const auto x = torch::randn({14, 3}, torch::kDouble);
  auto y = torch::randint(2, {14}, torch::kLong);
  y.slice(0, 3, 9).fill_(-1);
  const auto labelled = data::from_tensor_slices(std::tuple{x, y});
  TrainedRegression trained({.accumulate = 2}, 3, losses::cross_entropy({.ignore_index = -1}));
  trained.trainer.fit(labelled.batch(4), kQuiet);
  const auto alone = train_alone(
      {x, y}, 8, 1,
      [](Regression& model, const torch::Tensor& rows, const torch::Tensor& classes) {
        return torch::cross_entropy_loss(model->forward(rows), classes, {}, torch::Reduction::Mean, -1);
      },
      kNothing);
  EXPECT_TRUE(all_close(trained.parameters(), alone, kClose));
}

TEST(TrainerUnitTest, ClipsTheSummedGradients) {
  const Rows rows = make_rows(12);
  TrainedRegression norm({.clip_norm = 0.01});
  norm.trainer.fit(rows.dataset().batch(5), kQuiet);
  const auto clip_norm = [](Regression& model, auto&, int64_t) {
    torch::nn::utils::clip_grad_norm_(model->parameters(), 0.01);
  };
  EXPECT_TRUE(all_close(norm.parameters(), train_alone(rows, 5, 1, kMeanSquare, clip_norm), 1e-6));
  TrainedRegression value({.clip_value = 0.01});
  value.trainer.fit(rows.dataset().batch(5), kQuiet);
  const auto clip_value = [](Regression& model, auto&, int64_t) {
    torch::nn::utils::clip_grad_value_(model->parameters(), 0.01);
  };
  EXPECT_TRUE(all_close(value.parameters(), train_alone(rows, 5, 1, kMeanSquare, clip_value), kClose));
}

TEST(TrainerUnitTest, ClipsAccumulatedGradientsOnce) {
  const Rows rows = make_rows(12);
  TrainedRegression trained({.accumulate = 2, .clip_norm = 0.01, .clip_value = 0.02});
  trained.trainer.fit(rows.dataset().batch(3), kQuiet);
  const auto clip = [](Regression& model, auto&, int64_t) {
    torch::nn::utils::clip_grad_value_(model->parameters(), 0.02);
    torch::nn::utils::clip_grad_norm_(model->parameters(), 0.01);
  };
  EXPECT_TRUE(all_close(trained.parameters(), train_alone(rows, 6, 1, kMeanSquare, clip), 1e-6));
}

TEST(TrainerUnitTest, SchedulesAreFunctionsOfTheStep) {
  const Rows rows = make_rows(12);
  const auto rate = [](int64_t step) { return 0.1 / static_cast<double>(1 + step); };
  TrainedRegression trained({.schedules = {Schedule(rate)}});
  trained.trainer.fit(rows.dataset().batch(4), {.epochs = 2, .verbose = false});
  const auto set_rate = [&](auto&, torch::optim::SGD& sgd, int64_t step) {
    static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr(rate(step));
  };
  EXPECT_TRUE(all_close(trained.parameters(), train_alone(rows, 4, 2, kMeanSquare, set_rate), kClose));
  EXPECT_DOUBLE_EQ(trained.trainer.lr(), rate(5));
}

TEST(TrainerUnitTest, RegularizationCountsOnce) {
  const Rows rows = make_rows(11);
  const auto penalty_of = [](Regression::ContainedType& model) { return 0.1 * model.out->weight.square().sum(); };
  const Strategy strategy = tests::mirrored_cpus(3);
  auto scope = strategy.scope();
  torch::manual_seed(3);
  auto model = module<Regression>();
  auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1).momentum(0.9));
  Trainer trainer(strategy, model, sgd, losses::mse(), {.regularization = [&] { return penalty_of(*model); }});
  const Logs before = trainer.evaluate(rows.dataset().batch(4));
  torch::manual_seed(3);
  Regression alone;
  EXPECT_NEAR(before.at("loss"), (torch::mse_loss(alone->forward(rows.x), rows.y) + penalty_of(*alone)).item<double>(),
              kClose);
  trainer.fit(rows.dataset().batch(4), kQuiet);
  const auto with_penalty = [&](Regression& one, const torch::Tensor& x, const torch::Tensor& y) {
    return torch::mse_loss(one->forward(x), y) + penalty_of(*one);
  };
  EXPECT_TRUE(all_close(model.replica(0).parameters(), train_alone(rows, 4, 1, with_penalty, kNothing), kClose));
}

TEST(TrainerUnitTest, WeightsOfRowsAndClasses) {
  torch::manual_seed(7);
  const auto x = torch::randn({10, 3}, torch::kDouble);
  const auto y = torch::randint(2, {10}, torch::kLong);
  const auto weights = torch::rand({10}, torch::kDouble);
  const auto of_classes = torch::tensor({0.5, 2.0}, torch::kDouble);
  const auto given = of_classes.clone();
  TrainedRegression trained({.metrics = {metrics::sparse_categorical_accuracy("accuracy")},
                             .weighted_metrics = {metrics::sparse_categorical_accuracy("weighted")},
                             .class_weights = given},
                            2, losses::cross_entropy());
  given.zero_();  // too late
  const auto logs = trained.trainer.evaluate(data::from_tensor_slices(std::tuple{x, y, weights}).batch(4));
  torch::manual_seed(3);
  Regression alone;
  const auto output = alone->forward(x);
  const auto all = weights * of_classes.index_select(0, y);
  const auto each = torch::cross_entropy_loss(output, y, {}, torch::Reduction::None);
  const auto correct = output.argmax(1).eq(y).to(torch::kDouble);
  EXPECT_NEAR(logs.at("loss"), ((each * all).sum() / 10).item<double>(), kClose);
  EXPECT_NEAR(logs.at("accuracy"), correct.mean().item<double>(), kClose);
  EXPECT_NEAR(logs.at("weighted"), ((correct * all).sum() / all.sum()).item<double>(), kClose);
}

TEST(TrainerUnitTest, ReducedLossesAreSaid) {
  const Rows rows = make_rows(13);
  const auto mean = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  TrainedRegression unsaid({}, 2, mean);
  EXPECT_THAT(message_of<c10::ValueError>([&] { unsaid.trainer.fit(rows.dataset().batch(4), kQuiet); }),
              HasSubstr("LossReduction::Mean"));
  TrainedRegression said({}, 3, Loss(mean, LossReduction::Mean));
  const History history = said.trainer.fit(rows.dataset().batch(4), kQuiet);
  EXPECT_TRUE(all_close(said.parameters(), train_alone(rows, 4, 1, kMeanSquare, kNothing), kClose));
  TrainedRegression each({}, 3);
  EXPECT_NEAR(each.trainer.fit(rows.dataset().batch(4), kQuiet).values("loss")[0], history.values("loss")[0], kClose);
}

TEST(TrainerUnitTest, AveragesOfParametersAreEvaluated) {
  const Rows rows = make_rows(12);
  std::vector<torch::Tensor> average;
  const auto track = [&](Regression& model) {
    const torch::NoGradGuard no_grad;
    const auto parameters = model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (average.size() <= i) average.push_back(parameters[i].clone());
      average[i] = average[i] * 0.9 + parameters[i] * 0.1;
    }
  };
  int64_t steps = 0;
  const auto before_step = [&](Regression& model, auto&, int64_t step) {
    if (step > 0) track(model);
    if (step == 0) {
      for (const auto& parameter : model->parameters()) average.push_back(parameter.detach().clone());
    }
    steps = step;
  };
  const auto last = train_alone(rows, 4, 2, kMeanSquare, before_step);
  TrainedRegression trained({.ema_decay = 0.9}, 3);
  trained.trainer.fit(rows.dataset().batch(4), {.epochs = 2, .verbose = false});
  {
    const torch::NoGradGuard no_grad;  // the last update
    for (size_t i = 0; i < last.size(); ++i) average[i] = average[i] * 0.9 + last[i] * 0.1;
  }
  const auto predicted = trained.trainer.predict(rows.dataset().batch(5));
  EXPECT_TRUE(all_close(trained.parameters(), last, kClose)) << "the parameters are back";
  Regression averaged;
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < average.size(); ++i) averaged->parameters()[i].copy_(average[i]);
  }
  EXPECT_TRUE(torch::allclose(predicted, averaged->forward(rows.x), kClose, kClose));
}

/// Trains the two parts of a model with a loss of its own.
class AlternatingTrainer final : public Trainer {
 public:
  template <class... Args>
  explicit AlternatingTrainer(Args&&... args) : Trainer(std::forward<Args>(args)...) {}

 protected:
  void train_step(const Batch& batch) override {
    const Outputs outputs = forward(batch);
    LossShare share = loss(outputs, batch);
    share.value = share.value * 2;
    minimize(share);
    update_metrics(outputs, batch, share);
  }
};

TEST(TrainerUnitTest, StepsCanBeOverridden) {
  const Rows rows = make_rows(10);
  TrainedRegression parts;
  AlternatingTrainer trainer(parts.strategy, parts.model, parts.sgd, losses::mse());
  trainer.fit(rows.dataset().batch(4), kQuiet);
  const auto twice = [](Regression& model, const torch::Tensor& x, const torch::Tensor& y) {
    return 2 * torch::mse_loss(model->forward(x), y);
  };
  EXPECT_TRUE(all_close(parts.parameters(), train_alone(rows, 4, 1, twice, kNothing), kClose));
}

TEST(TrainerUnitTest, SeveralOptimizersAndFrozenParameters) {
  const Rows rows = make_rows(10);
  const Strategy strategy = tests::mirrored_cpus(2);
  auto scope = strategy.scope();
  torch::manual_seed(3);
  auto model = module<Regression>();
  const auto group_of = [](auto part) {
    return [part](Regression::ContainedType& one) {
      return std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(part(one))};
    };
  };
  const auto hidden = group_of([](auto& one) { return one.hidden->parameters(); });
  const auto out = group_of([](auto& one) { return one.out->parameters(); });
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  auto first = optimizer<torch::optim::SGD>(model, hidden, options);
  auto second = optimizer<torch::optim::SGD>(model, out, options);
  Trainer trainer(strategy, model, std::tie(first, second), losses::mse());
  trainer.fit(rows.dataset().batch(4), kQuiet);
  EXPECT_TRUE(all_close(model.replica(0).parameters(), train_alone(rows, 4, 1, kMeanSquare, kNothing), kClose));
  model->hidden->weight.set_requires_grad(false);
  const auto frozen = model->hidden->weight.clone();
  trainer.fit(rows.dataset().batch(4), {.epochs = 2, .verbose = false});
  EXPECT_TRUE(torch::equal(model.replica(1).hidden->weight, frozen));
}

TEST(TrainerUnitTest, StepsOfAnEpochGoOnInTheDataset) {
  const Rows rows = make_rows(10);
  TrainedRegression trained;
  const History history =
      trained.trainer.fit(rows.dataset().batch(4), {.epochs = 4, .steps_per_epoch = 2, .verbose = false});
  EXPECT_EQ(history.steps, 8);
  EXPECT_EQ(history.epochs.size(), 4U);
  const auto first_steps = [&] {
    torch::manual_seed(3);
    Regression model;
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 8; ++step) {
      const int64_t begin = step % 3 * 4;
      sgd.zero_grad();
      kMeanSquare(model, rows.x.slice(0, begin, begin + 4), rows.y.slice(0, begin, begin + 4)).backward();
      sgd.step();
    }
    return model->parameters();
  }();
  EXPECT_TRUE(all_close(trained.parameters(), first_steps, kClose));
}

TEST(TrainerUnitTest, FitGoesOnWhereItWas) {
  const Rows rows = make_rows(10);
  TrainedRegression trained;
  trained.trainer.fit(rows.dataset().batch(4), kQuiet);
  const History second = trained.trainer.fit(rows.dataset().batch(4), {.epochs = 2, .verbose = false});
  EXPECT_EQ(second.epochs.size(), 2U);
  EXPECT_EQ(second.steps, 9);
  EXPECT_EQ(trained.trainer.history().epochs.size(), 3U);
  EXPECT_TRUE(all_close(trained.parameters(), train_alone(rows, 4, 3, kMeanSquare, kNothing), kClose));
}

TEST(TrainerUnitTest, ModesOfSubmodulesStay) {
  const Rows rows = make_rows(6);
  TrainedRegression trained;
  trained.model->hidden->eval();
  trained.trainer.evaluate(rows.dataset().batch(4));
  EXPECT_TRUE(trained.model->is_training());
  EXPECT_TRUE(trained.model->out->is_training());
  EXPECT_FALSE(trained.model->hidden->is_training());
  trained.model.eval();
  trained.trainer.fit(rows.dataset().batch(4), kQuiet);
  EXPECT_TRUE(trained.model.replica(1).hidden->is_training());
}

/// Padded batches: the micro-batches of an update have different numbers of losses for each row.
TEST(TrainerUnitTest, DifferentLengthsNeedACount) {
  const auto batch_of = [](int64_t length) {
    return data::from_tensor_slices(
        std::tuple{torch::ones({4, length, 3}, torch::kDouble), torch::ones({4, length, 2}, torch::kDouble)});
  };
  const auto batches = batch_of(2).batch(4).concatenate(batch_of(5).batch(4));
  TrainedRegression trained({.accumulate = 2});
  EXPECT_THAT(message_of<c10::ValueError>([&] { trained.trainer.fit(batches, kQuiet); }), HasSubstr("count"));
  TrainedRegression single;
  single.trainer.fit(batches, kQuiet);
}

TEST(TrainerUnitTest, OptimizersMustSum) {
  const Strategy strategy = tests::mirrored_cpus(2);
  auto scope = strategy.scope();
  auto model = module<Regression>();
  auto mean = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1), {.gradients = Gradients::Mean});
  EXPECT_THAT(message_of<c10::ValueError>([&] { Trainer(strategy, model, mean, losses::mse()); }),
              HasSubstr("Gradients::Mean"));
}

TEST(TrainerUnitTest, BadInputIsNamed) {
  const Rows rows = make_rows(6);
  TrainedRegression trained;
  const auto error_of = [](auto call) { return message_of<c10::ValueError>(call); };
  EXPECT_THAT(error_of([&] { trained.trainer.fit(rows.dataset().repeat().batch(4), kQuiet); }),
              HasSubstr("steps_per_epoch"));
  EXPECT_THAT(error_of([&] { trained.trainer.fit(rows.dataset().take(0).batch(4), kQuiet); }), HasSubstr("no batches"));
  EXPECT_THAT(error_of([&] { trained.trainer.fit(rows.dataset().batch(4), {.epochs = -1}); }), HasSubstr("epochs=-1"));
  EXPECT_THAT(error_of([&] { TrainedRegression({.accumulate = 0}); }), HasSubstr("accumulate=0"));
  EXPECT_THAT(error_of([&] { TrainedRegression({.ema_decay = 1.0}); }), HasSubstr("ema_decay=1"));
  EXPECT_THAT(error_of([&] {
                TrainedRegression({.metrics = {metrics::mse(), metrics::mse()}});
              }),
              HasSubstr("same name"));
  EXPECT_THAT(error_of([&] {
                trained.trainer.fit(data::from_tensor_slices(std::tuple{rows.x, rows.y.select(1, 0)}).batch(4), kQuiet);
              }),
              HasSubstr("same shape"));
  EXPECT_THAT(error_of([&] { trained.trainer.result("accuracy"); }), HasSubstr("there are loss"));
}

}  // namespace
}  // namespace lockstep
