#include "lockstep/train/checkpoint_manager.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/strategy/strategies/one_device.h"
#include "tests/train/saved_objects.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::LogLines;
using tests::message_of;
using tests::SavedValues;
using tests::TestFolder;
using namespace std::chrono_literals;

/// A training of one tensor and one number, which a step changes.
struct Training {
  Training() {
    values->tensors["weight"] = torch::zeros({200, 300});
    values->numbers["rate"] = 0;
  }
  void set(double value) const {
    values->tensors["weight"].fill_(value);
    values->numbers["rate"] = value;
  }
  double value() const {
    const double first = values->tensors["weight"][0][0].item<double>();
    EXPECT_TRUE(torch::equal(values->tensors["weight"], torch::full({200, 300}, first)));
    EXPECT_EQ(values->numbers["rate"], first);
    return first;
  }

  std::shared_ptr<SavedValues> values = std::make_shared<SavedValues>();
  Checkpoint checkpoint{{"values", values}};
};

/// The file of a checkpoint's only part.
std::string part_of(const std::string& checkpoint) { return checkpoint + "/part_00000_of_00001.safetensors"; }

void save_steps(const Training& training, CheckpointManager& manager, std::initializer_list<int> steps) {
  for (const int step : steps) {
    training.set(step);
    manager.save(step);
  }
  manager.wait();
}

TEST(CheckpointManager, RestoresWhatItHasSaved) {
  const TestFolder folder;
  const Training training;
  CheckpointManager manager(training.checkpoint, folder / "run");
  EXPECT_EQ(manager.latest(), std::nullopt);
  EXPECT_EQ(manager.restore_latest(), std::nullopt);
  EXPECT_EQ(manager.restore_or_initialize(), 0);
  training.set(1.5);
  manager.save(10);
  training.set(2.5);  // While it is written.
  manager.wait();
  EXPECT_EQ(manager.latest(), 10);
  EXPECT_EQ(manager.restore_latest(), 10);
  EXPECT_EQ(training.value(), 1.5);
  const Training other;
  CheckpointManager later(other.checkpoint, folder / "run");
  EXPECT_EQ(later.restore_or_initialize(), 10);
  EXPECT_EQ(other.value(), 1.5);
  ASSERT_TRUE(later.last_restored().has_value());
  EXPECT_FALSE(later.last_restored()->from_memory);
}

TEST(CheckpointManager, KeepsTheLastOnes) {
  const TestFolder folder;
  const Training training;
  {
    CheckpointManager manager(training.checkpoint, folder.path(), {.keep = 2});
    save_steps(training, manager, {1, 2, 3, 4});
    EXPECT_THAT(manager.checkpoints(), ElementsAre(3, 4));
    manager.restore(3);
    EXPECT_EQ(training.value(), 3);
    EXPECT_THAT(message_of<DataError>([&] { manager.restore(2); }), HasSubstr("step_0000000002"));
  }
  EXPECT_THAT(folder.names(), ElementsAre("step_0000000003", "step_0000000004"));
}

TEST(CheckpointManager, ASecondSaveOfAStepReplacesTheFirst) {
  const TestFolder folder;
  const Training training;
  CheckpointManager manager(training.checkpoint, folder.path());
  save_steps(training, manager, {5});
  training.set(7);
  manager.save(5);
  manager.wait();
  EXPECT_THAT(folder.names(), ElementsAre("step_0000000005"));
  training.set(0);
  EXPECT_EQ(manager.restore_latest(), 5);
  EXPECT_EQ(training.value(), 7);
}

TEST(CheckpointManager, PassesOverDamagedOnesAndNamesThem) {
  const TestFolder folder;
  const Training training;
  {
    CheckpointManager manager(training.checkpoint, folder.path(), {.keep = 5});
    save_steps(training, manager, {1, 2, 3, 4});
  }
  fs::resize_file(part_of(folder / "step_0000000004"), 1000);
  {
    std::fstream part(part_of(folder / "step_0000000003"), std::ios::binary | std::ios::in | std::ios::out);
    part.seekp(100'000);
    part.put('\x5a');
  }
  fs::create_directories(folder / "step_0000000005");  // Half a copy of somebody.
  fs::create_directories(folder / ".step_0000000006.writing-1-0");
  const LogLines lines;
  CheckpointManager manager(training.checkpoint, folder.path(), {.keep = 5});
  EXPECT_EQ(manager.restore_latest(), 2);
  EXPECT_EQ(training.value(), 2);
  EXPECT_THAT(lines.text(), AllOf(HasSubstr("step_0000000003"), HasSubstr("step_0000000004"),
                                  HasSubstr("step_0000000005"), Not(HasSubstr("step_0000000002"))));
  EXPECT_FALSE(fs::exists(folder / ".step_0000000006.writing-1-0"));
}

TEST(CheckpointManager, DoesNotBeginAnewWhereAllAreDamaged) {
  const TestFolder folder;
  const Training training;
  CheckpointManager manager(training.checkpoint, folder.path());
  save_steps(training, manager, {1});
  fs::remove(folder / "step_0000000001/index.json");
  const LogLines lines;
  EXPECT_THAT(message_of<DataError>([&] { manager.restore_or_initialize(); }), HasSubstr("none of the checkpoints"));
  EXPECT_THAT(lines.text(), HasSubstr("no index.json"));
}

TEST(CheckpointManager, OtherNamesAndShapesAreAnErrorThatListsThem) {
  const TestFolder folder;
  const Training training;
  CheckpointManager manager(training.checkpoint, folder.path());
  save_steps(training, manager, {1});
  const Training other;
  other.values->tensors["weight"] = torch::zeros({3});
  other.values->tensors["bias"] = torch::zeros({4});
  other.values->numbers.clear();
  CheckpointManager reader(other.checkpoint, folder.path());
  EXPECT_THAT(message_of<c10::ValueError>([&] { reader.restore_latest(); }),
              AllOf(HasSubstr("values.bias"), HasSubstr("values.rate"), HasSubstr("[200, 300]")));
  EXPECT_EQ(other.values->tensors["weight"].sum().item<double>(), 0);
}

/// No file may become larger than so many bytes, for as long as it lives: what a full disk does, for any user.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(CheckpointManager, ErrorsOfASaveComeWithTheNextCallOnceAndLoseNothing) {
  const TestFolder folder;
  const Training training;
  CheckpointManager manager(training.checkpoint, folder.path());
  save_steps(training, manager, {1});
  {
    const SmallFiles limit(10'000);
    training.set(2);
    manager.save(2);
    EXPECT_THAT(message_of<DataError>([&] { manager.wait(); }),
                AllOf(HasSubstr("File too large"), HasSubstr("step 2 was not saved")));
    manager.wait();
    manager.save(3);
    EXPECT_THROW(manager.save(4), DataError);
    manager.save(5);
    while (true) {  // After a step, as soon as it is known.
      try {
        EXPECT_TRUE(manager.after_step(6));
      } catch (const DataError&) {
        break;
      }
    }
    EXPECT_TRUE(manager.after_step(7));
  }
  EXPECT_THAT(folder.names(), ElementsAre("step_0000000001"));
  save_steps(training, manager, {8});
  EXPECT_THAT(manager.checkpoints(), ElementsAre(1, 8));
}

TEST(CheckpointManager, AFolderThatCannotBeMadeIsAnError) {
  const TestFolder folder;
  std::ofstream(folder / "file") << "no folder";
  const Training training;
  CheckpointManager manager(training.checkpoint, folder / "file/run");
  manager.save(1);
  EXPECT_THAT(message_of<DataError>([&] { manager.wait(); }), HasSubstr("file/run"));
  EXPECT_THAT(message_of<DataError>([&] { manager.restore_latest(); }), HasSubstr("file/run"));
}

TEST(CheckpointManager, TheDestructorLogsAnErrorThatNobodyHasSeen) {
  const TestFolder folder;
  std::ofstream(folder / "file") << "no folder";
  const Training training;
  const LogLines lines;
  {
    CheckpointManager manager(training.checkpoint, folder / "file/run");
    manager.save(1);
  }
  EXPECT_THAT(lines.text(), HasSubstr("file/run"));
}

TEST(CheckpointManager, SavesByStepsAndByTime) {
  const TestFolder folder;
  const Training training;
  CheckpointManager by_steps(training.checkpoint, folder / "steps", {.keep = 0, .every_steps = 3});
  for (int step = 1; step <= 7; ++step) EXPECT_TRUE(by_steps.after_step(step));
  by_steps.wait();
  EXPECT_THAT(by_steps.checkpoints(), ElementsAre(3, 6));
  CheckpointManager by_time(training.checkpoint, folder / "time", {.every = 1ms});
  std::this_thread::sleep_for(2ms);
  EXPECT_TRUE(by_time.after_step(1));
  by_time.wait();
  EXPECT_THAT(by_time.checkpoints(), ElementsAre(1));
}

TEST(CheckpointManager, ALoopGoesOnWhereItEnded) {
  const TestFolder folder;
  std::vector<int64_t> seen;
  {
    const Training training;
    CheckpointManager manager(training.checkpoint, folder.path(), {.every_steps = 2});
    for (const int64_t step : manager.steps(10)) {
      seen.push_back(step);
      training.set(static_cast<double>(step));
      if (step == 5) break;
    }
  }
  const Training training;
  CheckpointManager manager(training.checkpoint, folder.path(), {.every_steps = 4});
  for (const int64_t step : manager.steps(7)) {
    if (seen.size() == 6) {
      EXPECT_EQ(training.value(), 3);
    }
    seen.push_back(step);
    training.set(static_cast<double>(step));
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 4, 5, 6));
  EXPECT_EQ(manager.latest(), 7);  // After the last step, also where it was not due.
  EXPECT_EQ(manager.exit_status(), 0);
  for (const int64_t step : manager.steps(7)) ADD_FAILURE() << step;
}

TEST(CheckpointManager, SigtermSavesAndEndsTheLoop) {
  const TestFolder folder;
  static int calls_of_older_handler = 0;
  const auto before = std::signal(SIGTERM, [](int) { ++calls_of_older_handler; });
  {
    const Training training;
    CheckpointManager manager(training.checkpoint, folder.path());
    for (const int64_t step : manager.steps(10)) {
      training.set(static_cast<double>(step));
      if (step == 3) std::raise(SIGTERM);
      EXPECT_LE(step, 3);
    }
    EXPECT_TRUE(manager.preempted());
    EXPECT_EQ(manager.exit_status(), 75);
    EXPECT_THAT(manager.checkpoints(), ElementsAre(4));
  }
  EXPECT_EQ(calls_of_older_handler, 1);
  std::raise(SIGTERM);
  EXPECT_EQ(calls_of_older_handler, 2);
  std::signal(SIGTERM, before);
}

TEST(CheckpointManager, SigtermSavesAlsoAfterASaveThatFailed) {
  const TestFolder folder;
  const Training training;
  const LogLines lines;
  CheckpointManager manager(training.checkpoint, folder.path());
  {
    const SmallFiles limit(10'000);
    manager.save(1);
    EXPECT_EQ(manager.restore_or_initialize(), 0);  // Waits for the save.
  }
  std::raise(SIGTERM);
  EXPECT_FALSE(manager.after_step(2));
  EXPECT_THAT(manager.checkpoints(), ElementsAre(2));
  EXPECT_THAT(lines.text(), HasSubstr("step 1 was not saved"));
}

TEST(CheckpointManager, EndsOnRequestWithACheckpoint) {
  const TestFolder folder;
  const Training training;
  CheckpointManager manager(training.checkpoint, folder.path());
  int64_t last = -1;
  manager.set_end_request([&] { return last == 2; });
  for (const int64_t step : manager.steps(10)) last = step;
  EXPECT_EQ(last, 2);
  EXPECT_TRUE(manager.ended_by_request());
  EXPECT_FALSE(manager.preempted());
  EXPECT_EQ(manager.latest(), 3);
}

TEST(CheckpointManager, TheNewestIsRestoredFromMemoryOrDisk) {
  const TestFolder folder;
  ::setenv("LOCKSTEP_MEMORY_FOLDER", (folder / "memory").c_str(), 1);
  {
    const Training training;
    CheckpointManager manager(training.checkpoint, folder / "run", {.every_steps = 3, .redundancy = 1});
    for (const int64_t step : manager.steps(10)) {
      training.set(static_cast<double>(step + 1));
      if (step == 4) break;  // Before the snapshot of step 5.
    }
  }
  const Training training;
  CheckpointManager manager(training.checkpoint, folder / "run", {.redundancy = 1});
  EXPECT_EQ(manager.restore_latest(), 4);
  EXPECT_EQ(training.value(), 4);
  EXPECT_TRUE(manager.last_restored()->from_memory);
  fs::remove_all(folder / "memory");
  EXPECT_EQ(manager.restore_latest(), 3);
  EXPECT_EQ(training.value(), 3);
  EXPECT_FALSE(manager.last_restored()->from_memory);
  ::unsetenv("LOCKSTEP_MEMORY_FOLDER");
  const LogLines lines;
  const CheckpointManager without(training.checkpoint, folder / "run", {.redundancy = 1});
  EXPECT_THAT(lines.text(), HasSubstr("LOCKSTEP_MEMORY_FOLDER"));
}

TEST(CheckpointManager, IsNotUsedInsideOfARun) {
  const TestFolder folder;
  const OneDeviceStrategy strategy("CPU:0");
  const auto scope = strategy.scope();
  const Training training;
  CheckpointManager manager(training.checkpoint, folder.path(), {.every_steps = 1});
  EXPECT_THROW(strategy.run([&] { manager.save(1); }), ContextError);
  EXPECT_THROW(strategy.run([&] { manager.after_step(1); }), ContextError);
  EXPECT_THAT(manager.checkpoints(), IsEmpty());
}

TEST(CheckpointManager, OptionsAndNamesAreChecked) {
  const Training training;
  EXPECT_THROW(CheckpointManager(training.checkpoint, "x", {.keep = -1}), c10::ValueError);
  EXPECT_THROW(CheckpointManager(training.checkpoint, "x", {.redundancy = 2}), c10::ValueError);
  EXPECT_THROW(CheckpointManager(training.checkpoint, ""), c10::ValueError);
  EXPECT_THROW((Checkpoint{{"a.b", training.values}}), c10::ValueError);
  EXPECT_THROW((Checkpoint{{"random", training.values}}), c10::ValueError);
  EXPECT_THROW((Checkpoint{{"a", training.values}, {"a", training.values}}), c10::ValueError);
  CheckpointManager manager(training.checkpoint, "x");
  EXPECT_THROW(manager.save(-1), c10::ValueError);
  EXPECT_THROW(manager.steps(-1), c10::ValueError);
}

}  // namespace
}  // namespace lockstep
