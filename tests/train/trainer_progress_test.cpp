// What a Trainer shows of its progress.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/block_file.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/load_plan.h"
#include "tests/support/child_processes.h"
#include "tests/support/free_port.h"
#include "tests/support/terminal.h"
#include "tests/train/trainer_fixture.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using tests::EnvironmentValue;
using tests::ErrorOutputTo;
using tests::make_rows;
using tests::Rows;
using tests::Terminal;
using tests::TrainedRegression;

/// Steps that take their time.
struct SlowSteps : Callback {
  void on_step_end(Trainer& trainer, int64_t /*step*/) override {
    std::this_thread::sleep_for(25ms);
    if (trainer.step() == interrupted_step) ::raise(SIGINT);
  }
  int64_t interrupted_step = -1;
};

class TrainerProgressTest : public ::testing::Test {
 protected:
  EnvironmentValue term_{"TERM", "xterm"};
  EnvironmentValue no_color_{"NO_COLOR", "1"};
  EnvironmentValue locale_{"LC_ALL", "C"};
  Terminal terminal_{80};
  Rows rows_ = make_rows(48);
};

TEST_F(TrainerProgressTest, ABarOnATerminalAndALineForEachEpoch) {
  {
    const ErrorOutputTo output(terminal_.descriptor());
    TrainedRegression trained({.callbacks = {std::make_shared<SlowSteps>()}});
    trained.trainer.fit(rows_.dataset().batch(4), {.epochs = 2, .validation = rows_.dataset().batch(4)});
  }
  EXPECT_TRUE(terminal_.shows("epoch 2/2: "));
  const std::string output = terminal_.output();
  EXPECT_THAT(output, HasSubstr("epoch 1/2 ["));
  EXPECT_THAT(output, HasSubstr("/12, "));
  EXPECT_THAT(output, HasSubstr(" steps/s, loss "));
  EXPECT_THAT(output, HasSubstr(" left\033[K"));
  const auto rows = terminal_.screen(80).rows();
  EXPECT_FALSE(terminal_.screen(200).has_wrapped());
  EXPECT_THAT(rows[0], MatchesRegex("epoch 1/2: 12 steps, 0\\.[0-9] s, [0-9.]+ steps/s, loss.*"));
  EXPECT_EQ(rows.back(), "");
}

TEST_F(TrainerProgressTest, OnlyLinesWhereThereIsNoTerminal) {
  testing::internal::CaptureStderr();
  TrainedRegression trained;
  trained.trainer.fit(rows_.dataset().batch(4), {.epochs = 2});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              MatchesRegex("epoch 1/2: 12 steps, [0-9.]+ s, [0-9.]+ steps/s, loss.*\n"
                           "epoch 2/2: 12 steps, [0-9.]+ s, [0-9.]+ steps/s, loss.*\n"));
}

TEST_F(TrainerProgressTest, NothingWhereItIsNotVerbose) {
  {
    const ErrorOutputTo output(terminal_.descriptor());
    TrainedRegression trained({.callbacks = {std::make_shared<SlowSteps>()}});
    trained.trainer.fit(rows_.dataset().batch(4), {.verbose = false});
  }
  EXPECT_EQ(terminal_.output(), "");
}

TEST_F(TrainerProgressTest, ARestoredEpochBeginsInItsMiddle) {
  const tests::TestFolder folder;
  const auto fit = [&](int64_t interrupted_step) {
    const auto slow = std::make_shared<SlowSteps>();
    slow->interrupted_step = interrupted_step;
    TrainedRegression trained({.callbacks = {slow}});
    return trained.trainer.fit(rows_.dataset().batch(4), {.checkpoint_folder = folder / "run"});
  };
  {
    const Terminal other(80);
    const ErrorOutputTo output(other.descriptor());
    EXPECT_EQ(fit(7).end, History::End::Interrupted);
  }
  {
    const ErrorOutputTo output(terminal_.descriptor());
    EXPECT_EQ(fit(-1).steps, 12);
  }
  EXPECT_TRUE(terminal_.shows("epoch 1/1: 12 steps"));
  const std::string output = terminal_.output();
  const size_t first = output.find("] ");
  ASSERT_NE(first, std::string::npos);
  EXPECT_GE(std::stoi(output.substr(first + 2)), 7) << output;
}

TEST_F(TrainerProgressTest, EvaluateAndPredictAreShownWhereADisplayIsOn) {
  struct SlowEvaluation : Callback {
    void on_evaluate_step_end(Trainer&, int64_t) override { std::this_thread::sleep_for(150ms); }
    void on_predict_step_end(Trainer&, int64_t) override { std::this_thread::sleep_for(150ms); }
  };
  TrainedRegression trained({.callbacks = {std::make_shared<SlowEvaluation>()}});
  const ErrorOutputTo output(terminal_.descriptor());
  const progress::Display display(trained.trainer.is_chief());
  trained.trainer.evaluate(rows_.dataset().batch(4));
  trained.trainer.predict(rows_.dataset().batch(4));
  EXPECT_TRUE(terminal_.shows("evaluating ["));
  EXPECT_TRUE(terminal_.shows("predicting ["));
}

TEST_F(TrainerProgressTest, BytesAreCountedWhileTheyAreWrittenAndRead) {
  const tests::TestFolder folder;
  const torch::Tensor values = torch::arange(1'500'000, torch::kFloat);
  const detail::SavedPiece piece{.name = "values",
                                 .dtype = at::kFloat,
                                 .sizes = {values.numel()},
                                 .end = values.numel(),
                                 .bytes = static_cast<const char*>(values.data_ptr())};
  const ErrorOutputTo output(terminal_.descriptor());
  const progress::Display display;
  detail::PartIndex part;
  {
    progress::Task task("writing", {.unit = "bytes", .total = 6'000'000});
    part = detail::write_part(folder / "part", {piece}, {.task = &task});
    EXPECT_TRUE(terminal_.shows("] 6.00/6.00 MB, ", terminal_.output().size()));
  }
  const auto file = std::make_shared<const detail::BlockFile>(folder / "part", part.checksums);
  {
    StateTensor stored;
    stored.dtype = at::kFloat;
    stored.sizes = {values.numel()};
    stored.stored.push_back({0, values.numel(), file, part.pieces[0].offset});
    const torch::Tensor target = torch::zeros_like(values);
    progress::Task task("reading", {.unit = "bytes"});
    detail::read_tensors({{&stored, {{0, target}}}}, &task);
    EXPECT_TRUE(torch::equal(target, values));
    EXPECT_TRUE(terminal_.shows("] 6.00/6.00 MB, ", terminal_.output().size()));
  }
  {
    progress::Task task("verifying", {.unit = "bytes", .total = part.num_bytes});
    file->verify(&task);
    EXPECT_TRUE(terminal_.shows("] 6.00/6.00 MB, ", terminal_.output().size()));
  }
}

/// One worker of the test below.
TEST(TrainerProgressChild, DISABLED_Worker) {
  const Strategy strategy = MultiWorkerMirroredStrategy();
  const auto model = tests::make_regression(strategy);
  const auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1));
  Trainer trainer(strategy, model, sgd, losses::mse(), {.callbacks = {std::make_shared<SlowSteps>()}});
  const char* const folder = std::getenv("PROGRESS_TEST_FOLDER");
  const History history = trainer.fit(
      make_rows(96).dataset().batch(4),
      {.checkpoint_folder = folder == nullptr ? "" : folder, .verbose = std::getenv("PROGRESS_TEST_QUIET") == nullptr});
  EXPECT_EQ(history.steps, 24);
}

TEST_F(TrainerProgressTest, OfTwoWorkersOnlyTheChiefSpeaks) {
  for (const bool has_folder : {false, true}) {
    const tests::TestFolder folder;
    const Terminal terminal(80);
    const std::string hosts = "\"localhost:" + std::to_string(tests::free_port()) +
                              "\", \"localhost:" + std::to_string(tests::free_port()) + "\"";
    const auto command = [&](int worker) {
      std::vector<std::string> words{"env",
                                     "TF_CONFIG={\"cluster\": {\"worker\": [" + hosts +
                                         "]}, \"task\": {\"type\": \"worker\", \"index\": " + std::to_string(worker) +
                                         "}}",
                                     "LOCKSTEP_JOB_TOKEN=a token of the tests"};
      if (has_folder) words.push_back("PROGRESS_TEST_FOLDER=" + (folder / "run"));
      // A worker that shows nothing takes part in reading what the chief shows.
      if (has_folder && worker == 1) words.emplace_back("PROGRESS_TEST_QUIET=1");
      words.insert(words.end(), {tests::this_program(), "--gtest_also_run_disabled_tests",
                                 "--gtest_filter=TrainerProgressChild.DISABLED_Worker"});
      return words;
    };
    tests::ChildProcess chief(command(0), terminal.path());
    tests::ChildProcess other(command(1), folder / "output");
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    ASSERT_TRUE(chief.wait_until(deadline)) << terminal.output();
    ASSERT_TRUE(other.wait_until(deadline)) << other.output();
    EXPECT_EQ(chief.outcome(), "exit 0") << terminal.output();
    EXPECT_EQ(other.outcome(), "exit 0") << other.output();
    EXPECT_TRUE(terminal.shows("epoch 1/1: 24 steps"));
    EXPECT_THAT(terminal.output(), HasSubstr(" steps/s, loss "));
    EXPECT_THAT(other.output(), Not(HasSubstr("epoch 1/1")));
  }
}

}  // namespace
}  // namespace lockstep
