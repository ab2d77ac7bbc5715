#include "lockstep/train/retention.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/state/checkpoint_folder.h"
#include "tests/train/saved_objects.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::TestFolder;
using namespace std::chrono_literals;

void make_checkpoint(const std::string& path) {
  fs::create_directories(path);
  write_index(path, CheckpointInfo{}, State(), {.sync = false});
}

TEST(Retention, KeepsTheOnesWrittenLast) {
  const std::vector<WrittenCheckpoint> written{{10, 1}, {20, 2}, {30, 3}, {40, 4}};
  EXPECT_THAT(steps_to_remove(written, {.keep = 3}), ElementsAre(10));
  EXPECT_THAT(steps_to_remove(written, {.keep = 1}), ElementsAre(10, 20, 30));
  EXPECT_THAT(steps_to_remove(written, {.keep = 4}), IsEmpty());
  EXPECT_THAT(steps_to_remove(written, {.keep = 0}), IsEmpty());
}

TEST(Retention, GoesByTimeWhereStepsWereDoneAgain) {
  EXPECT_THAT(steps_to_remove({{300, 3}, {200, 2}, {150, 9}}, {.keep = 2}), ElementsAre(200));
  EXPECT_THAT(steps_to_remove({{300, 3}, {200, 2}, {150, 9}}, {.keep = 1}), ElementsAre(200, 300));
}

TEST(Retention, KeepsOneForEachPeriod) {
  std::vector<WrittenCheckpoint> written;
  for (int i = 0; i < 10; ++i) written.push_back({i, 600.0 * i});
  EXPECT_THAT(steps_to_remove(written, {.keep = 2, .keep_every = 1800s}), ElementsAre(1, 2, 4, 5, 7));
}

TEST(Retention, RemovesCheckpointsAndWhatDeadWritersLeft) {
  const TestFolder folder;
  for (const int step : {1, 2, 3}) make_checkpoint(folder / ("step_000000000" + std::to_string(step)));
  make_checkpoint(folder / ".step_0000000004.writing-dead-0");
  fs::remove(folder / ".step_0000000004.writing-dead-0/index.json");
  make_checkpoint(folder / ".step_0000000004.writing-own-0");
  make_checkpoint(folder / ".step_0000000001.removing");
  make_checkpoint(folder / "notes");
  const TemporaryFolder alive(folder.path(), 5, "alive-0", true);
  alive.make();
  hide_unkept(folder.path(), {.keep = 2});
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(2, 3));
  EXPECT_TRUE(fs::exists(folder / ".step_0000000001.removing"));
  remove_leftovers(folder.path(), "own");
  EXPECT_THAT(folder.names(), ElementsAre(".step_0000000004.writing-own-0", ".step_0000000005.writing-alive-0", "notes",
                                          "step_0000000002", "step_0000000003"));
}

TEST(Retention, CompleteCheckpointsThatAKillHasLeftWithoutTheirNameGetIt) {
  const TestFolder folder;
  make_checkpoint(folder / ".step_0000000004.writing-dead-0");
  std::ofstream(folder / ".step_0000000004.writing-dead-0/part") << "new";
  make_checkpoint(folder / ".step_0000000004.writing-dead-0.removing");
  make_checkpoint(folder / ".step_0000000003.removing");
  make_checkpoint(folder / "step_0000000005");
  make_checkpoint(folder / ".step_0000000005.writing-dead-0");
  make_checkpoint(folder / ".step_0000000006.writing-dead-0");
  std::ofstream(folder / ".step_0000000006.writing-dead-0/index.json") << "{}";  // a power loss
  remove_leftovers(folder.path(), "own");
  EXPECT_THAT(folder.names(), ElementsAre("step_0000000004", "step_0000000005"));
  EXPECT_TRUE(fs::exists(folder / "step_0000000004/part"));
}

TEST(Retention, AFolderThatIsThereIsReplaced) {
  const TestFolder folder;
  make_checkpoint(folder / "step_1");
  make_checkpoint(folder / "new");
  std::ofstream(folder / "new/part") << "new";
  move_into_place(folder / "new", folder / "step_1");
  EXPECT_THAT(folder.names(), ElementsAre("step_1"));
  EXPECT_TRUE(fs::exists(folder / "step_1/part"));
  make_checkpoint(folder / "other");
  move_into_place(folder / "other", folder / "step_2");
  EXPECT_THAT(folder.names(), ElementsAre("step_1", "step_2"));
  EXPECT_THAT(tests::message_of<DataError>([&] { move_into_place(folder / "none", folder / "step_3"); }),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace lockstep::detail
