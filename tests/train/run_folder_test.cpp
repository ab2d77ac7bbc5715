#include "lockstep/train/runs/run_folder.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/train/runs/git_state.h"
#include "lockstep/train/runs/run_description.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"
#include "tests/train/json_files.h"
#include "tests/train/trainer_fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using tests::at_step;
using tests::bytes_of;
using tests::json_of;
using tests::lines_of;
using tests::make_rows;
using tests::message_of;
using tests::Rows;
using tests::TestFolder;
using tests::TrainedRegression;
using Json = nlohmann::json;

/// A log that is not finite.
class NotFinite final : public Callback {
 public:
  void on_epoch_end(Trainer& /*trainer*/, int64_t epoch, Logs& logs) override {
    logs["odd"] = epoch == 0 ? std::nan("") : -INFINITY;
  }
};

TEST(RunFolderTest, DescribesTheRun) {
  const TestFolder folder;
  const Rows rows = make_rows(8);
  ::setenv("LOCKSTEP_JOB_TOKEN", "secret", 1);
  ::setenv("OMP_NUM_THREADS", "1", 0);
  TrainedRegression trained(
      {.callbacks = {std::make_shared<NotFinite>(),
                     callbacks::run_folder(folder / "a/first/",
                                           {.configuration = R"({"rate": 0.1, "nested": {"on": true}})", .seed = 7})}});
  trained.trainer.fit(rows.dataset().batch(2), {.epochs = 2, .validation = rows.dataset().batch(4), .verbose = false});
  ::unsetenv("LOCKSTEP_JOB_TOKEN");

  const Json run = json_of(folder / "a/first/run.json");
  EXPECT_EQ(run.at("format"), 1);
  EXPECT_EQ(run.at("name"), "first");
  EXPECT_EQ(run.at("state"), "finished");
  EXPECT_EQ(run.at("seed"), 7);
  EXPECT_EQ(run.at("pid"), getpid());
  EXPECT_EQ(run.at("parameters"), 3 * 8 + 8 + 8 * 2 + 2);
  EXPECT_EQ(run.at("configuration").at("nested").at("on"), true);
  EXPECT_EQ(run.at("strategy"), Json::parse(R"({"name": "MirroredStrategy", "workers": 1, "replicas": 2,
                                                "devices": ["CPU:0", "CPU:1"]})"));
  EXPECT_TRUE(run.at("resumed_from_step").is_null());
  EXPECT_FALSE(run.at("environment").contains("LOCKSTEP_JOB_TOKEN"));
  EXPECT_TRUE(run.at("environment").contains("OMP_NUM_THREADS"));
  EXPECT_THAT(run.at("command").at(0).get<std::string>(), HasSubstr("lockstep_train_test"));
  EXPECT_TRUE(run.at("ended").is_string());

  const auto metrics = lines_of(folder / "a/first/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[1].at("epoch"), 1);
  EXPECT_EQ(metrics[1].at("step"), 8);
  EXPECT_EQ(metrics[1].at("examples"), 8);
  EXPECT_TRUE(metrics[1].at("loss").is_number());
  EXPECT_TRUE(metrics[1].at("val_loss").is_number());
  EXPECT_EQ(metrics[0].at("odd"), "NaN");
  EXPECT_EQ(metrics[1].at("odd"), "-Infinity");
  EXPECT_EQ(lines_of(folder / "a/first/collectives.jsonl").at(0).at("lockstep_dump"), 1);
}

TEST(RunFolderTest, StepsHaveIntervals) {
  const TestFolder folder;
  const Rows rows = make_rows(9);
  TrainedRegression trained(
      {.callbacks = {callbacks::run_folder(folder.path(), {.tensorboard = false, .line_every = 1e-9})}});
  trained.trainer.fit(rows.dataset().batch(4), {.epochs = 2, .verbose = false});
  const auto steps = lines_of(folder / "steps.jsonl");
  ASSERT_EQ(steps.size(), 6U) << "one line for each step";
  int64_t examples = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i + 1);
    EXPECT_EQ(steps[i].at("steps"), 1);
    EXPECT_GT(steps[i].at("seconds").get<double>(), 0);
    EXPECT_EQ(steps[i].at("lr"), 0.1);
    examples += steps[i].at("examples").get<int64_t>();
  }
  EXPECT_EQ(examples, 18);
  EXPECT_EQ(steps[5].at("epoch"), 1);
  const Json& replicas = steps[5].at("workers").at(0).at("replicas");
  ASSERT_EQ(replicas.size(), 2U);
  EXPECT_EQ(replicas[1].at("replica"), 1);
  EXPECT_EQ(replicas[1].at("device"), "CPU:1");
  EXPECT_TRUE(replicas[1].at("memory").is_null()) << "replicas on CPUs share the memory of the process";
  EXPECT_GT(steps[5].at("workers").at(0).at("memory").get<int64_t>(), 1 << 20);
  for (const std::string& name : folder.names()) EXPECT_FALSE(name.starts_with("events")) << name;
}

TEST(RunFolderTest, LongIntervalsHaveAllSteps) {
  const TestFolder folder;
  const Rows rows = make_rows(8);
  TrainedRegression trained({.callbacks = {callbacks::run_folder(folder.path(), {.line_every = 1000})}});
  trained.trainer.fit(rows.dataset().batch(4), {.epochs = 3, .verbose = false});
  const auto steps = lines_of(folder / "steps.jsonl");
  ASSERT_EQ(steps.size(), 2U) << "the first step, and all others at the end";
  EXPECT_EQ(steps[1].at("step"), 6);
  EXPECT_EQ(steps[1].at("steps"), 5);
  EXPECT_EQ(steps[1].at("examples"), 20);
}

TEST(RunFolderTest, FailedTrainings) {
  const TestFolder folder;
  const Rows rows = make_rows(8);
  TrainedRegression trained({.callbacks = {at_step(3, [](Trainer&) { throw std::runtime_error("on purpose"); }),
                                           callbacks::run_folder(folder.path())}});
  EXPECT_THROW(trained.trainer.fit(rows.dataset().batch(2), {.epochs = 2, .verbose = false}), std::runtime_error);
  const Json run = json_of(folder / "run.json");
  EXPECT_EQ(run.at("state"), "failed");
  EXPECT_EQ(run.at("reason"), "on purpose");
  EXPECT_EQ(lines_of(folder / "steps.jsonl").at(0).at("step"), 1);
}

TEST(RunFolderTest, StoppedTrainings) {
  const TestFolder folder;
  const Rows rows = make_rows(8);
  TrainedRegression trained({.callbacks = {at_step(3, [](Trainer& trainer) { trainer.stop("enough"); }),
                                           callbacks::run_folder(folder.path())}});
  trained.trainer.fit(rows.dataset().batch(2), {.epochs = 2, .verbose = false});
  EXPECT_EQ(json_of(folder / "run.json").at("state"), "stopped");
  EXPECT_EQ(json_of(folder / "run.json").at("reason"), "enough");
}

/// Ends a training after `last_step` and returns what it left.
void train_into(const TestFolder& folder, int64_t last_step, int64_t epochs, const std::string& checkpoints) {
  const Rows rows = make_rows(8);
  TrainedRegression trained(
      {.callbacks = {callbacks::run_folder(folder / "run", {.line_every = 1e-9}),
                     at_step(last_step, [](Trainer&) { throw std::runtime_error("on purpose"); })}});
  const auto fit = [&] {
    trained.trainer.fit(rows.dataset().batch(2),
                        {.epochs = epochs, .checkpoint_folder = checkpoints, .verbose = false});
  };
  if (last_step > 0) {
    EXPECT_THROW(fit(), std::runtime_error);
  } else {
    fit();
  }
}

TEST(RunFolderTest, RestoredTrainingsGoOn) {
  const TestFolder folder;
  train_into(folder, 6, 3, folder / "checkpoints");
  EXPECT_EQ(lines_of(folder / "run/metrics.jsonl").size(), 1U);
  EXPECT_EQ(lines_of(folder / "run/steps.jsonl").back().at("step"), 6);
  const Json before = json_of(folder / "run/run.json");
  std::ofstream(folder / "run/metrics.jsonl", std::ios::app) << R"({"epoch": 1, "step": 8})"
                                                             << "\n{\"epo";

  train_into(folder, 0, 3, folder / "checkpoints");
  const Json run = json_of(folder / "run/run.json");
  EXPECT_EQ(run.at("resumed_from_step"), 4);
  EXPECT_EQ(run.at("created"), before.at("created"));
  EXPECT_EQ(run.at("state"), "finished");
  const auto metrics = lines_of(folder / "run/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(metrics[i].at("epoch"), i);
  const auto steps = lines_of(folder / "run/steps.jsonl");
  ASSERT_EQ(steps.size(), 12U);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(steps[i].at("step"), i + 1);

  train_into(folder, 0, 1, "");
  EXPECT_EQ(lines_of(folder / "run/metrics.jsonl").size(), 1U) << "a training that begins anew";
}

TEST(RunFolderTest, Arguments) {
  EXPECT_THAT(message_of<c10::ValueError>([] { callbacks::run_folder(""); }), HasSubstr("name"));
  EXPECT_THAT(message_of<c10::ValueError>([] { callbacks::run_folder("x", {.configuration = "[1]"}); }),
              HasSubstr("JSON object"));
  EXPECT_THAT(message_of<c10::ValueError>([] { callbacks::run_folder("x", {.line_every = 0}); }),
              HasSubstr("line_every=0"));
  EXPECT_NO_THROW(callbacks::run_folder("x", {.configuration = std::map<std::string, std::string>{{"a", "b"}}}));
}

TEST(RunFolderTest, GitState) {
  const auto state = detail::parse_git_status(
      "# branch.oid 0123abcd\n# branch.head main\n# branch.upstream origin/main\n1 .M N... 100644 100644 a b f\n");
  EXPECT_EQ(state.commit, "0123abcd");
  EXPECT_EQ(state.branch, "main");
  EXPECT_TRUE(state.dirty);
  EXPECT_EQ(state.changed_files, 1);
  EXPECT_EQ(detail::parse_git_status("# branch.oid 0123\n? a\n? b/\n").untracked_files, 2);
  EXPECT_FALSE(detail::parse_git_status("# branch.oid 0123\n? a\n").dirty);
  EXPECT_FALSE(detail::parse_git_status("# branch.oid 0123\n# branch.head (detached)\n").dirty);
  EXPECT_EQ(detail::parse_git_status("# branch.oid 0123\n# branch.head (detached)\n").branch, "");
  const TestFolder folder;
  EXPECT_FALSE(detail::git_state(folder.path(), std::chrono::seconds(20)).has_value());
  EXPECT_FALSE(detail::git_state(folder.path(), std::chrono::milliseconds(0)).has_value());
  EXPECT_FALSE(detail::git_difference(folder.path(), std::chrono::seconds(20), 1000).has_value());
}

TEST(RunFolderTest, SecretsStayOut) {
  EXPECT_TRUE(detail::is_described_variable("SLURM_JOB_ID"));
  EXPECT_TRUE(detail::is_described_variable("TF_CONFIG"));
  EXPECT_TRUE(detail::is_described_variable("RANK"));
  for (const char* name : {"LOCKSTEP_JOB_TOKEN", "SLURM_JWT", "CUDA_API_KEY", "HOME", "PATH", "AWS_REGION"}) {
    EXPECT_FALSE(detail::is_described_variable(name)) << name;
  }
}

}  // namespace
}  // namespace lockstep
