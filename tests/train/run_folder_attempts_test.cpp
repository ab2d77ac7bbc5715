// Run folders of trainings that are started several times, at the same time, or on a full disk.

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/train/runs/earlier_steps.h"
#include "lockstep/train/runs/run_folder.h"
#include "lockstep/train/runs/run_lock.h"
#include "lockstep/train/tensorboard/event_files.h"
#include "lockstep/train/tensorboard/event_message.h"
#include "lockstep/train/tensorboard/summary_writer.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"
#include "tests/train/json_files.h"
#include "tests/train/trainer_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
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
using tests::write_bytes;
using Json = nlohmann::json;

Json run_in(const TestFolder& folder) { return json_of(folder / "run/run.json"); }

struct Attempt {
  int64_t epochs = 1;
  /// The step at which it fails; 0: it does not.
  int64_t fails_at = 0;
  std::string checkpoints = {};
  int64_t checkpoint_every = 0;
  callbacks::RunFolderOptions options = {.line_every = 1e-9};
  std::function<void(Trainer&)> at_two = [](Trainer&) {};
};

/// Four steps of two rows are an epoch.
void train(const TestFolder& folder, const Attempt& attempt) {
  const Rows rows = make_rows(8);
  TrainedRegression trained(
      {.callbacks = {callbacks::run_folder(folder / "run", attempt.options), at_step(2, attempt.at_two),
                     at_step(attempt.fails_at, [](Trainer&) { throw std::runtime_error("on purpose"); })}});
  const auto fit = [&] {
    trained.trainer.fit(rows.dataset().batch(2), {.epochs = attempt.epochs,
                                                  .validation = rows.dataset().batch(4),
                                                  .checkpoint_folder = attempt.checkpoints,
                                                  .checkpoint = {.every_steps = attempt.checkpoint_every},
                                                  .verbose = false});
  };
  if (attempt.fails_at > 0) {
    EXPECT_THROW(fit(), std::runtime_error);
  } else {
    fit();
  }
}

/// A process that holds the lock of a folder until it is killed.
pid_t start_holder(const std::string& lock) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const int file = ::open(lock.c_str(), O_RDWR | O_CREAT, 0666);
    const char is_locked = ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 'y' : 'n';
    if (::write(ends[1], &is_locked, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char is_locked = 0;
  EXPECT_EQ(::read(ends[0], &is_locked, 1), 1);
  EXPECT_EQ(is_locked, 'y');
  ::close(ends[0]);
  ::close(ends[1]);
  return child;
}

TEST(RunAttemptsTest, OneTrainingAtATime) {
  const TestFolder folder;
  train(folder, {});
  const std::string before = bytes_of(folder / "run/run.json");
  const pid_t other = start_holder(folder / "run/run.lock");
  const std::string message = message_of<ContextError>([&] { train(folder, {}); });
  EXPECT_THAT(message, HasSubstr("folder=" + (folder / "run")));
  EXPECT_THAT(message, HasSubstr("process=" + std::to_string(getpid())));
  EXPECT_EQ(bytes_of(folder / "run/run.json"), before);
  EXPECT_EQ(lines_of(folder / "run/steps.jsonl").size(), 4U);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  const std::string try_lock = "flock --nonblock '" + (folder / "run/run.lock") + "' true";
  int while_training = 0;
  train(folder, {.at_two = [&](Trainer&) { while_training = std::system(try_lock.c_str()); }});
  EXPECT_NE(while_training, 0) << "a process of the training holds the lock";
  EXPECT_EQ(std::system(try_lock.c_str()), 0) << "it is released at the end";
}

TEST(RunAttemptsTest, LaterStartsKeepTheDescription) {
  const TestFolder folder;
  train(folder, {.epochs = 2, .fails_at = 6, .checkpoints = folder / "checkpoints", .options = {.seed = 1}});
  const Json first = run_in(folder);
  EXPECT_EQ(first.at("attempts").size(), 1U);
  EXPECT_EQ(first.at("attempts")[0].at("state"), "failed");
  EXPECT_EQ(first.at("attempts")[0].at("from_step"), 0);
  train(folder, {.epochs = 2, .checkpoints = folder / "checkpoints", .options = {.seed = 2}});
  const Json run = run_in(folder);
  EXPECT_EQ(run.at("seed"), 1) << "what is needed to repeat the run is that of its first start";
  EXPECT_EQ(run.at("started"), first.at("started"));
  EXPECT_EQ(run.at("state"), "finished");
  ASSERT_EQ(run.at("attempts").size(), 2U);
  EXPECT_EQ(run.at("attempts")[0], first.at("attempts")[0]);
  EXPECT_EQ(run.at("attempts")[1].at("from_step"), 4);
  EXPECT_EQ(run.at("attempts")[1].at("seed"), 2);
  EXPECT_EQ(run.at("attempts")[1].at("state"), "finished");
  EXPECT_EQ(run.at("attempts")[1].at("pid"), getpid());
  EXPECT_FALSE(run.at("attempts")[1].contains("environment")) << "it is the same";
}

TEST(RunAttemptsTest, TrainingsThatBeginAnewSetAside) {
  const TestFolder folder;
  for (int i = 0; i < 3; ++i) train(folder, {.epochs = i + 1});
  EXPECT_EQ(lines_of(folder / "run/metrics.jsonl").size(), 3U);
  EXPECT_EQ(lines_of(folder / "run/before/metrics.jsonl").size(), 1U);
  EXPECT_EQ(lines_of(folder / "run/before-1/metrics.jsonl").size(), 2U);
  EXPECT_EQ(Json::parse(bytes_of(folder / "run/before/run.json")).at("state"), "finished");
  EXPECT_EQ(tensorboard::earlier_event_files(folder / "run").size(), 1U);
  EXPECT_EQ(tensorboard::earlier_event_files(folder / "run/before/validation").size(), 1U);
  EXPECT_TRUE(run_in(folder).at("resumed_from_step").is_null());
}

TEST(RunAttemptsTest, ARestoredEpochIsWhole) {
  const TestFolder folder;
  const Attempt first{.epochs = 2, .fails_at = 7, .checkpoints = folder / "checkpoints", .checkpoint_every = 3};
  train(folder, first);
  train(folder, {.epochs = 2, .checkpoints = folder / "checkpoints", .checkpoint_every = 3});
  const auto metrics = lines_of(folder / "run/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(run_in(folder).at("resumed_from_step"), 6);
  EXPECT_EQ(metrics[1].at("examples"), 8);
  double seconds = 0;
  for (const Json& line : lines_of(folder / "run/steps.jsonl")) {
    if (line.at("step") > 4 && line.at("step") <= 6) seconds += line.at("seconds").get<double>();
  }
  EXPECT_GE(metrics[1].at("seconds").get<double>(), seconds * 0.999);
  EXPECT_EQ(bytes_of(folder / "run/metrics.csv").substr(0, 6), "epoch,");
}

TEST(RunAttemptsTest, StepsAddUpAfterAKill) {
  const TestFolder folder;
  const detail::JsonLines lines(folder / "steps.jsonl");
  const std::string first = R"({"step": 1, "steps": 1, "seconds": 9, "examples": 2, "time": 10})"
                            "\n";
  const std::string second = R"({"step": 11, "steps": 10, "seconds": 20, "examples": 20, "time": 30,)"
                             R"( "workers": [{"replicas": [{"replica": 0, "forward": 10.0, "memory": 5}]}]})"
                             "\n";
  write_bytes(folder / "steps.jsonl", first + second);
  const auto crossed = detail::earlier_steps(lines, {.step = 6, .epoch = 1, .step_in_epoch = 3});
  ASSERT_TRUE(crossed.missing);
  EXPECT_EQ((*crossed.missing)["steps"], 5) << "the part of the line up to the checkpoint";
  EXPECT_EQ((*crossed.missing)["examples"], 10);
  EXPECT_EQ((*crossed.missing)["seconds"], 10.0);
  EXPECT_EQ((*crossed.missing)["workers"][0]["replicas"][0]["forward"], 5.0);
  EXPECT_EQ((*crossed.missing)["workers"][0]["replicas"][0]["memory"], 5);
  EXPECT_EQ(crossed.epoch_examples, 6) << "of three steps";
  EXPECT_EQ(crossed.seconds, 19);

  const auto lost = detail::earlier_steps(lines, {.step = 16, .epoch = 1, .step_in_epoch = 10});
  ASSERT_TRUE(lost.missing);
  EXPECT_EQ((*lost.missing)["steps"], 5) << "an estimate without the first line";
  EXPECT_EQ((*lost.missing)["seconds"], 10.0);
  EXPECT_EQ(lost.epoch_examples, 20);
  EXPECT_FALSE(detail::earlier_steps(lines, {.step = 11}).missing);
}

TEST(RunAttemptsTest, LongTrainingsHaveLongIntervals) {
  const TestFolder folder;
  train(folder, {.epochs = 2, .fails_at = 6, .checkpoints = folder / "checkpoints"});
  std::string steps;
  for (Json line : lines_of(folder / "run/steps.jsonl")) {
    line["seconds"] = 1e6;
    steps += line.dump() + "\n";
  }
  write_bytes(folder / "run/steps.jsonl", steps);
  train(folder, {.epochs = 3, .checkpoints = folder / "checkpoints"});
  const auto lines = lines_of(folder / "run/steps.jsonl");
  ASSERT_EQ(lines.size(), 6U) << "four, the first step of the second start, and all others";
  EXPECT_EQ(lines[5].at("steps"), 7);
}

TEST(RunAttemptsTest, AFullDiskEndsNoTraining) {
  const TestFolder folder;
  const std::string steps = folder / "run/steps.jsonl";
  train(folder, {.epochs = 2, .at_two = [&](Trainer&) {
                   fs::rename(steps, folder / "kept");
                   fs::create_symlink("/dev/full", steps);
                 }});
  EXPECT_EQ(run_in(folder).at("state"), "finished");
  EXPECT_GE(run_in(folder).at("missing_lines").get<int64_t>(), 6);
  EXPECT_EQ(lines_of(folder / "run/metrics.jsonl").size(), 2U);
}

/// The process cannot make files longer than this.
void limit_files(size_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

TEST(RunAttemptsTest, NoPartOfALineStays) {
  const TestFolder folder;
  const std::string path = folder / "lines";
  EXPECT_EXIT(
      {
        detail::JsonLines lines(path);
        lines.append({{"a", 1}});
        limit_files(12);
        lines.append({{"b", 123456}});
        lines.append({{"c", 1}});  // no space for both
        const bool is_good = lines.num_missing() == 2 && bytes_of(path) == "{\"a\":1}\n";
        ::_exit(is_good ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");  // what it prints is limited, too
}

TEST(RunAttemptsTest, LastWordsNeedNoSpace) {
  const TestFolder folder;
  const std::string path = folder / "run.json";
  detail::RunJson run{{"state", "running"}, {"list", std::vector<int>(200)}};
  run["attempts"] = detail::RunJson::array({{{"state", "running"}}});
  write_bytes(path, detail::json_text(run, 2) + "\n");
  run["state"] = "failed";
  run["reason"] = std::string(10000, 'x');
  detail::RunLock lock;
  EXPECT_EXIT(
      {
        limit_files(fs::file_size(path));
        ::_exit(detail::write_last_words(path, run, lock) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  const Json written = json_of(path);
  EXPECT_EQ(written.at("state"), "failed");
  EXPECT_LE(written.at("reason").get<std::string>().size(), 100U);
}

/// The steps of the events of files, without the two records at the beginning.
std::vector<int64_t> steps_of_events(const std::vector<std::string>& paths) {
  std::vector<int64_t> steps;
  for (const std::string& path : paths) {
    data::RecordReader reader(path);
    for (data::Bytes record; reader.next(record);) steps.push_back(tensorboard::decode_step(record));
  }
  return steps;
}

TEST(RunAttemptsTest, OlderEventsHaveNoLaterSteps) {
  const TestFolder folder;
  train(folder, {.epochs = 2, .fails_at = 7, .checkpoints = folder / "checkpoints"});
  const auto files = tensorboard::earlier_event_files(folder / "run");
  ASSERT_EQ(files.size(), 1U);
  fs::resize_file(files[0], fs::file_size(files[0]) - 3);  // as after a kill
  train(folder, {.epochs = 2, .checkpoints = folder / "checkpoints"});
  const std::vector<int64_t> steps = steps_of_events({files[0]});
  EXPECT_LE(*std::max_element(steps.begin(), steps.end()), 4);
  EXPECT_GE(steps.size(), 6U);
}

TEST(RunAttemptsTest, ARefusedTrainingLeavesTheReserveOfTheOther) {
  const TestFolder folder;
  detail::RunLock first;
  first.acquire(folder.path(), {});
  const auto size = fs::file_size(folder / "run.lock");
  EXPECT_GT(size, 0U);
  detail::RunLock second;
  EXPECT_THROW(second.acquire(folder.path(), {}), ContextError);
  EXPECT_EQ(fs::file_size(folder / "run.lock"), size);
  const pid_t child = ::fork();
  if (child == 0) {
    first.release();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(fs::file_size(folder / "run.lock"), size);
  EXPECT_THROW(second.acquire(folder.path(), {}), ContextError);
  first.release();
  second.acquire(folder.path(), {});
}

TEST(RunAttemptsTest, EventsOfOtherWritersStay) {
  const TestFolder folder;
  tensorboard::SummaryWriter own(folder.path());
  own.scalar("a", 1, 10);
  own.close();
  // As if another process of this host, which lives, had written it.
  std::string path;
  {
    tensorboard::SummaryWriter made(folder.path(), {.filename_suffix = tensorboard::kTrainingSuffix});
    made.scalar("a", 1, 10);
    path = made.path();
  }
  const std::string process = "." + std::to_string(::getpid()) + ".";
  std::string other = path;
  other.replace(other.rfind(process), process.size(), "." + std::to_string(::getppid()) + ".");
  fs::rename(path, other);
  tensorboard::cut_event_files(folder.path(), 5);
  EXPECT_THAT(steps_of_events({own.path(), other}), ::testing::ElementsAre(0, 10, 0, 10));
}

TEST(RunAttemptsTest, DamagedEventFilesAreKept) {
  const TestFolder folder;
  std::string path;
  {
    tensorboard::SummaryWriter writer(folder.path(), {.filename_suffix = tensorboard::kTrainingSuffix});
    for (int step = 1; step <= 5; ++step) writer.scalar("a", 1, step);
    path = writer.path();
  }
  std::string bytes = bytes_of(path);
  bytes[bytes.size() / 2] ^= 1;
  tests::write_bytes(path, bytes);
  tensorboard::cut_event_files(folder.path(), 5);
  EXPECT_EQ(bytes_of(folder / ("before/" + fs::path(path).filename().string())), bytes);
}

TEST(RunAttemptsTest, FilesThatAreOpenStay) {
  const TestFolder folder;
  tensorboard::SummaryWriter writer(folder.path(), {.filename_suffix = tensorboard::kTrainingSuffix});
  writer.scalar("a", 1, 10);
  tensorboard::cut_event_files(folder.path(), 5);
  writer.scalar("a", 1, 11);
  writer.close();
  EXPECT_THAT(steps_of_events({writer.path()}), ::testing::ElementsAre(0, 10, 11));
}

}  // namespace
}  // namespace lockstep
