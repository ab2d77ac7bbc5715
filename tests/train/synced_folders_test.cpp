#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/train/retention.h"
#include "tests/support/test_folder.h"

namespace {

std::mutex synced_mutex;
/// What this program has synced.
std::set<std::string> synced_paths;

}  // namespace

/// In place of the system's.
extern "C" int fsync(int descriptor) {
  std::error_code ignored;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored);
  {
    const std::lock_guard lock(synced_mutex);
    synced_paths.insert(path.string());
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace lockstep::detail {
namespace {

using ::testing::Contains;
using ::testing::Not;

std::set<std::string> take_synced() {
  const std::lock_guard lock(synced_mutex);
  return std::exchange(synced_paths, {});
}

TEST(SyncedFolders, FoldersAboveANewOneAreSynced) {
  const tests::TestFolder folder;
  take_synced();
  make_synced_folders(folder / "runs/first/checkpoints/");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "runs/first/checkpoints"));
  std::set<std::string> synced = take_synced();
  EXPECT_THAT(synced, Contains(folder.path().string()));
  EXPECT_THAT(synced, Contains(folder / "runs"));
  EXPECT_THAT(synced, Contains(folder / "runs/first"));
  make_synced_folders(folder / "runs/first/checkpoints");
  EXPECT_THAT(take_synced(), Not(Contains(folder / "runs/first")));
  const TemporaryFolder temporary(folder / "runs/second", 3, "token", true);
  temporary.make();
  EXPECT_THAT(take_synced(), Contains(folder / "runs"));
}

}  // namespace
}  // namespace lockstep::detail
