#include "lockstep/train/callbacks/callbacks.h"

#include <cmath>
#include <csignal>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"
#include "tests/train/trainer_fixture.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tests::all_close;
using tests::at_step;
using tests::bytes_of;
using tests::make_rows;
using tests::message_of;
using tests::Rows;
using tests::TestFolder;
using tests::TrainedRegression;

/// Replaces a log by values of its own, one for each epoch.
class GivenLogs final : public Callback {
 public:
  GivenLogs(std::string name, std::vector<double> values) : name_(std::move(name)), values_(std::move(values)) {}
  void on_epoch_end(Trainer& /*trainer*/, int64_t epoch, Logs& logs) override {
    logs[name_] = values_.at(static_cast<size_t>(epoch));
  }

 private:
  std::string name_;
  std::vector<double> values_;
};

std::shared_ptr<Callback> given(const std::string& name, std::vector<double> values) {
  return std::make_shared<GivenLogs>(name, std::move(values));
}

TEST(CallbacksTest, EarlyStopping) {
  const Rows rows = make_rows(6);
  TrainedRegression trained(
      {.callbacks = {given("score", {5, 4, 4, 3.9, 3.8}),
                     callbacks::early_stopping({.monitor = "score", .min_delta = 0.5, .patience = 2})}});
  const History history = trained.trainer.fit(rows.dataset().batch(4), {.epochs = 5, .verbose = false});
  EXPECT_EQ(history.epochs.size(), 4U) << "two epochs that are no better, as in Keras";
  EXPECT_EQ(history.end, History::End::Stopped);
  EXPECT_THAT(history.reason, HasSubstr("score"));
  const History more = trained.trainer.fit(rows.dataset().batch(4), {.verbose = false});
  EXPECT_EQ(more.epochs.size(), 1U) << "another fit judges anew";
  for (const int64_t patience : {0, 1}) {
    TrainedRegression impatient({.callbacks = {given("score", {5, 4, 4, 3}),
                                               callbacks::early_stopping({.monitor = "score", .patience = patience})}});
    EXPECT_EQ(impatient.trainer.fit(rows.dataset().batch(4), {.epochs = 4, .verbose = false}).epochs.size(), 3U);
  }
  TrainedRegression larger(
      {.callbacks = {given("val_accuracy", {0.1, 0.2, 0.2}), callbacks::early_stopping({.monitor = "val_accuracy"})}});
  EXPECT_EQ(larger.trainer.fit(rows.dataset().batch(4), {.epochs = 3, .verbose = false}).epochs.size(), 3U);
  TrainedRegression unknown({.callbacks = {callbacks::early_stopping({.monitor = "accuracy"})}});
  EXPECT_THAT(message_of<c10::ValueError>([&] { unknown.trainer.fit(rows.dataset().batch(4), {.verbose = false}); }),
              HasSubstr("monitor=accuracy"));
}

TEST(CallbacksTest, BestModelIsKept) {
  const TestFolder folder;
  const Rows rows = make_rows(6);
  const std::string path = folder / "best.safetensors";
  std::vector<torch::Tensor> best;
  TrainedRegression trained(
      {.callbacks = {given("val_loss", {3, 1, 2}), callbacks::best_model(path), at_step(4, [&](Trainer& trainer) {
                       for (const auto& [name, value] : trainer.model_state()) {
                         best.push_back(std::get<StateTensor>(value).read());
                       }
                     })}});
  trained.trainer.fit(rows.dataset().batch(4), {.epochs = 3, .verbose = false});
  const State saved = load_file(path);
  std::vector<torch::Tensor> loaded;
  for (const auto& [name, value] : saved) {
    if (const auto* tensor = std::get_if<StateTensor>(&value)) loaded.push_back(tensor->read());
  }
  EXPECT_TRUE(all_close(loaded, best, 0));
}

TEST(CallbacksTest, NanEndsTheTrainingAndTheBatchIsSaved) {
  const TestFolder folder;
  Rows rows = make_rows(12);
  rows.x[6][0] = std::numeric_limits<double>::quiet_NaN();
  TrainedRegression trained({.callbacks = {callbacks::terminate_on_nan({.folder = folder / "nan"})}});
  const History history = trained.trainer.fit(rows.dataset().batch(4), {.epochs = 3, .verbose = false});
  EXPECT_EQ(history.steps, 2);
  EXPECT_THAT(history.reason, HasSubstr("nan_step2_worker0.safetensors"));
  const State saved = load_file(folder / "nan/nan_step2_worker0.safetensors");
  EXPECT_TRUE(torch::equal(saved.tensor("step2.batch0.replica1.target.0").read(), rows.y.slice(0, 6, 8)));
  EXPECT_TRUE(saved.tensor("step2.batch0.replica1.input.0").read()[0][0].isnan().item<bool>());
}

TEST(CallbacksTest, PlateauMultipliesTheSchedule) {
  const Rows rows = make_rows(4);
  TrainedRegression trained(
      {.callbacks = {given("val_loss", {1, 1, 1, 1}),
                     callbacks::reduce_on_plateau("val_loss", {.factor = 0.5, .patience = 1})},
       .schedules = {Schedule([](int64_t step) { return 1.0 / static_cast<double>(step + 1); })}});
  trained.trainer.fit(rows.dataset().batch(4), {.epochs = 4, .verbose = false});
  EXPECT_DOUBLE_EQ(trained.trainer.lr(), 0.5 / 4);
  EXPECT_DOUBLE_EQ(trained.trainer.lr_factor(), 0.5);
}

TEST(CallbacksTest, LogsHaveALineForEachEpoch) {
  const TestFolder folder;
  const Rows rows = make_rows(4);
  TrainedRegression trained({.callbacks = {given("score", {1, std::nan("")}), callbacks::csv_log(folder / "log.csv"),
                                           callbacks::json_log(folder / "log.jsonl")}});
  trained.trainer.fit(rows.dataset().batch(4),
                      {.epochs = 2, .validation = rows.dataset().batch(4), .validation_every = 2, .verbose = false});
  EXPECT_THAT(bytes_of(folder / "log.csv"), StartsWith("epoch,loss,score,val_loss\n0,"));
  EXPECT_THAT(bytes_of(folder / "log.csv"), HasSubstr(",1,\n1,"));
  EXPECT_THAT(bytes_of(folder / "log.jsonl"), StartsWith("{\"epoch\":0,\"loss\":"));
  EXPECT_THAT(bytes_of(folder / "log.jsonl"), HasSubstr("\"score\":null"));
}

/// Counts the calls.
class Moments final : public Callback {
 public:
  void on_train_begin(Trainer&) override { ++calls["train_begin"]; }
  void on_train_end(Trainer&, const History&) override { ++calls["train_end"]; }
  void on_epoch_begin(Trainer&, int64_t) override { ++calls["epoch_begin"]; }
  void on_epoch_end(Trainer&, int64_t, Logs&) override { ++calls["epoch_end"]; }
  void on_step_begin(Trainer&, int64_t) override { ++calls["step_begin"]; }
  void on_step_end(Trainer&, int64_t) override { ++calls["step_end"]; }
  void on_evaluate_begin(Trainer&) override { ++calls["evaluate_begin"]; }
  void on_evaluate_step_end(Trainer&, int64_t) override { ++calls["evaluate_step_end"]; }
  void on_evaluate_end(Trainer&, const Logs&) override { ++calls["evaluate_end"]; }
  void on_predict_begin(Trainer&) override { ++calls["predict_begin"]; }
  void on_predict_step_end(Trainer&, int64_t) override { ++calls["predict_step_end"]; }
  void on_predict_end(Trainer&) override { ++calls["predict_end"]; }
  std::map<std::string, int> calls;
};

TEST(CallbacksTest, EveryMomentIsCalled) {
  const Rows rows = make_rows(10);
  const auto moments = std::make_shared<Moments>();
  TrainedRegression trained({.callbacks = {moments}});
  trained.trainer.fit(rows.dataset().batch(4), {.epochs = 2, .validation = rows.dataset().batch(5), .verbose = false});
  trained.trainer.predict(rows.dataset().batch(3));
  const std::map<std::string, int> expected{{"train_begin", 1},    {"train_end", 1},         {"epoch_begin", 2},
                                            {"epoch_end", 2},      {"step_begin", 6},        {"step_end", 6},
                                            {"evaluate_begin", 2}, {"evaluate_step_end", 4}, {"evaluate_end", 2},
                                            {"predict_begin", 1},  {"predict_step_end", 4},  {"predict_end", 1}};
  EXPECT_EQ(moments->calls, expected);
}

TrainerOptions with_all_state(std::vector<std::shared_ptr<Callback>> more) {
  TrainerOptions options{.metrics = {metrics::mae()},
                         .callbacks = {callbacks::early_stopping({.monitor = "loss", .patience = 10}),
                                       callbacks::reduce_on_plateau("loss", {.factor = 0.5, .patience = 0})},
                         .schedules = {Schedule([](int64_t step) { return 0.1 / static_cast<double>(step + 1); })},
                         .ema_decay = 0.9};
  for (auto& callback : more) options.callbacks.push_back(std::move(callback));
  return options;
}

/// A training that a signal ends after a step goes on as if nothing had happened.
TEST(CallbacksTest, SignalsEndAfterTheStepAndTheTrainingGoesOn) {
  const Rows rows = make_rows(22);
  // Each training has its own source: epochs of a source go on.
  const auto batches = [&] { return rows.dataset().shuffle(22, {.seed = 4}).batch(4); };
  TrainedRegression whole(with_all_state({at_step(-1, {})}));
  const FitOptions fit{.epochs = 3, .validation = rows.dataset().batch(5), .verbose = false};
  const History undisturbed = whole.trainer.fit(batches(), fit);
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const int64_t step : {2, 6, 11}) {  // in an epoch, at its end
      SCOPED_TRACE(c10::str("signal ", signal, " after step ", step));
      const TestFolder folder;
      FitOptions saved = fit;
      saved.checkpoint_folder = folder / "run";
      TrainedRegression first(with_all_state({at_step(step, [signal](Trainer&) { ::raise(signal); })}));
      const History stopped = first.trainer.fit(batches(), saved);
      EXPECT_EQ(stopped.steps, step);
      EXPECT_EQ(stopped.exit_status(), signal == SIGINT ? 130 : 75);
      TrainedRegression second(with_all_state({at_step(-1, {})}), 2);
      const History resumed = second.trainer.fit(batches(), saved);
      EXPECT_EQ(resumed.steps, undisturbed.steps);
      EXPECT_EQ(resumed.epochs, undisturbed.epochs);
      EXPECT_EQ(resumed.exit_status(), 0);
      EXPECT_TRUE(all_close(second.parameters(), whole.parameters(), 0));
      const auto whole_rows = rows.dataset().batch(5);
      EXPECT_TRUE(torch::equal(second.trainer.predict(whole_rows), whole.trainer.predict(whole_rows))) << "averages";
      TrainedRegression third(with_all_state({at_step(-1, {})}), 3);  // another number of replicas; all is done
      EXPECT_EQ(third.trainer.fit(batches(), saved).epochs, undisturbed.epochs);
      EXPECT_TRUE(all_close(third.parameters(), whole.parameters(), 0));
    }
  }
}

/// The end of a pass may be inside of an epoch's updates, and a group of batches may be smaller than the others.
TEST(CallbacksTest, RestoredAtTheEndOfAPass) {
  const Rows rows = make_rows(20);  // 5 batches
  const auto batches = [&] { return rows.dataset().shuffle(20, {.seed = 4}).batch(4); };
  for (const bool by_steps : {false, true}) {
    SCOPED_TRACE(by_steps ? "5 updates of 1 batch" : "3 updates of 2, 2 and 1 batches");
    FitOptions fit{.epochs = 3, .verbose = false};
    if (by_steps) fit.steps_per_epoch = 5;
    const TrainerOptions options{.metrics = {metrics::mae()}, .accumulate = by_steps ? 1 : 2};
    TrainedRegression whole(options);
    const History undisturbed = whole.trainer.fit(batches(), fit);
    for (int64_t step = 1; step < undisturbed.steps; ++step) {
      SCOPED_TRACE(c10::str("ended after step ", step));
      const TestFolder folder;
      FitOptions saved = fit;
      saved.checkpoint_folder = folder / "run";
      TrainerOptions ended = options;
      ended.callbacks.push_back(at_step(step, [](Trainer&) { ::raise(SIGTERM); }));
      TrainedRegression first(ended);
      EXPECT_EQ(first.trainer.fit(batches(), saved).steps, step);
      TrainerOptions resumed_options = options;
      resumed_options.callbacks.push_back(at_step(-1, {}));
      TrainedRegression second(resumed_options);
      const History resumed = second.trainer.fit(batches(), saved);
      EXPECT_EQ(resumed.steps, undisturbed.steps);
      EXPECT_EQ(resumed.epochs, undisturbed.epochs);
      EXPECT_TRUE(all_close(second.parameters(), whole.parameters(), 0));
    }
  }
}

TEST(CallbacksTest, AStateWithoutNumbersIsNotSaved) {
  const TestFolder folder;
  Rows rows = make_rows(12);
  rows.x[6][0] = std::numeric_limits<double>::quiet_NaN();
  TrainedRegression trained({.callbacks = {callbacks::terminate_on_nan({.folder = folder / "nan"})}});
  FitOptions fit{.epochs = 3, .checkpoint_folder = folder / "run", .verbose = false};
  fit.checkpoint.every_steps = 1;
  const History history = trained.trainer.fit(rows.dataset().batch(4), fit);
  EXPECT_EQ(history.end, History::End::Stopped);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/step_0000000001"))
      << ::testing::PrintToString(TestFolder().names());
  EXPECT_FALSE(std::filesystem::exists(folder / "run/step_0000000002"));
}

TEST(CallbacksTest, AStoppedTrainingStaysStopped) {
  const TestFolder folder;
  const Rows rows = make_rows(6);
  const FitOptions fit{.epochs = 5, .checkpoint_folder = folder / "run", .verbose = false};
  const auto options = [](int64_t patience) {
    return TrainerOptions{.callbacks = {given("score", {1, 1, 1, 1, 1}),
                                        callbacks::early_stopping({.monitor = "score", .patience = patience})}};
  };
  TrainedRegression first(options(0));
  EXPECT_EQ(first.trainer.fit(rows.dataset().batch(4), fit).epochs.size(), 2U);
  TrainedRegression again(options(0));
  const History unchanged = again.trainer.fit(rows.dataset().batch(4), fit);
  EXPECT_EQ(unchanged.epochs.size(), 2U);
  EXPECT_EQ(unchanged.end, History::End::Stopped);
  TrainedRegression patient(options(3));
  EXPECT_EQ(patient.trainer.fit(rows.dataset().batch(4), fit).epochs.size(), 4U);
}

/// A signal in the middle of a validation ends it; the validation is made again.
TEST(CallbacksTest, SignalsEndAValidation) {
  class InValidation final : public Callback {
   public:
    explicit InValidation(bool raises) : raises_(raises) {}
    void on_evaluate_step_end(Trainer& trainer, int64_t step) override {
      if (raises_ && trainer.epoch() == 1 && step == 2) ::raise(SIGTERM);
    }

   private:
    bool raises_;
  };
  const TestFolder folder;
  const Rows rows = make_rows(12);
  const FitOptions fit{.epochs = 3, .validation = rows.dataset().batch(3), .verbose = false};
  TrainedRegression whole;
  const History undisturbed = whole.trainer.fit(rows.dataset().batch(4), fit);
  FitOptions saved = fit;
  saved.checkpoint_folder = folder / "run";
  TrainedRegression first({.callbacks = {std::make_shared<InValidation>(true)}});
  const History ended = first.trainer.fit(make_rows(12).dataset().batch(4), saved);
  EXPECT_EQ(ended.end, History::End::Preempted);
  EXPECT_EQ(ended.epochs.size(), 1U);
  TrainedRegression second({.callbacks = {std::make_shared<InValidation>(false)}});
  const History resumed = second.trainer.fit(make_rows(12).dataset().batch(4), saved);
  EXPECT_EQ(resumed.epochs, undisturbed.epochs);
}

TEST(CallbacksTest, SignalsWithoutAFolderEndTheTraining) {
  const Rows rows = make_rows(12);
  TrainedRegression trained({.callbacks = {at_step(2, [](Trainer&) { ::raise(SIGINT); })}});
  const History history = trained.trainer.fit(rows.dataset().batch(4), {.epochs = 3, .verbose = false});
  EXPECT_EQ(history.end, History::End::Interrupted);
  EXPECT_EQ(history.steps, 2);
}

}  // namespace
}  // namespace lockstep
