// Programs on disk: files, limits, damage, several writers; and the notice of a slow compilation.

#include "lockstep/xla/engine/program_store.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/xla/engine/compile_program.h"
#include "tests/support/child_processes.h"

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr int64_t kPlenty = 1 << 20;

class ProgramStoreTest : public ::testing::Test {
 protected:
  ProgramStoreTest() : store_(folder_, kPlenty) {}

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }

  tests::TestFolder parent_;
  fs::path folder_ = parent_.path() / "made" / "here";
  ProgramStore store_;
};

TEST_F(ProgramStoreTest, ReturnsWhatWasStored) {
  EXPECT_EQ(store_.find("key"), std::nullopt);
  const std::string program("a\0b\n", 4);
  store_.put("key", program);
  store_.put("other key", "other program");
  EXPECT_THAT(store_.find("key"), Optional(program));
  EXPECT_THAT(ProgramStore(folder_, kPlenty).find("other key"), Optional(std::string("other program")));
  EXPECT_EQ(store_.find("ke"), std::nullopt);
  store_.put("key", "another");
  EXPECT_THAT(store_.find("key"), Optional(std::string("another")));
  store_.remove("key");
  EXPECT_EQ(store_.find("key"), std::nullopt);
  EXPECT_EQ(files().size(), 1u) << "no temporary file is left";
  EXPECT_TRUE(ProgramStore(folder_.string() + "/", kPlenty).find("other key"));
  const ProgramStore made(folder_ / "below" / "", kPlenty);
  EXPECT_EQ(fs::status(folder_ / "below").permissions(), fs::perms::owner_all);
}

TEST_F(ProgramStoreTest, DamagedFilesAreNoPrograms) {
  const std::string program(1000, 'p');
  store_.put("key", program);
  const fs::path file = files().at(0);
  const auto size = fs::file_size(file);
  for (const size_t damaged : {size_t{0}, size_t{20}, size_t{39}, size_t{41}, size_t{500}, size_t{size - 1}}) {
    store_.put("key", program);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<long>(damaged)).put('x');
    EXPECT_EQ(store_.find("key"), std::nullopt) << "byte " << damaged;
  }
  for (const size_t length : {size_t{0}, size_t{10}, size_t{40}, size_t{42}, size_t{size - 1}}) {
    store_.put("key", program);
    fs::resize_file(file, length);
    EXPECT_EQ(store_.find("key"), std::nullopt) << length << " bytes";
  }
  store_.put("key", program);
  std::ofstream(file, std::ios::app) << "more";
  EXPECT_EQ(store_.find("key"), std::nullopt);
  store_.put("key", program);
  EXPECT_THAT(store_.find("key"), Optional(program));
}

TEST_F(ProgramStoreTest, TheLeastRecentlyUsedProgramsAreRemoved) {
  const ProgramStore small(folder_, 3500);
  const std::string program(1000, 'p');
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  for (const char* key : {"a", "b", "c"}) {
    small.put(key, program);
    wait();
  }
  EXPECT_TRUE(small.find("a"));  // used after b and c
  wait();
  small.put("d", program);
  EXPECT_TRUE(small.find("a"));
  EXPECT_FALSE(small.find("b"));
  EXPECT_TRUE(small.find("c"));
  EXPECT_TRUE(small.find("d"));
  small.put("large", std::string(4000, 'p'));
  EXPECT_FALSE(small.find("large"));
  EXPECT_TRUE(small.find("d")) << "a program above the limit removes no other";
}

TEST_F(ProgramStoreTest, LeftoversOfDeadProcessesAreRemoved) {
  const fs::path fresh = folder_ / "writing.abcdef", old = folder_ / "writing.ghijkl", foreign = folder_ / "notes.txt";
  for (const fs::path& file : {fresh, old, foreign}) std::ofstream(file) << std::string(5000, 'x');
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::last_write_time(foreign, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ProgramStore(folder_, 3500).put("key", "program");
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(foreign)) << "files of others stay";
}

TEST_F(ProgramStoreTest, FoldersThatOthersCanWriteAreRefused) {
  const auto error = [&](const fs::path& folder) -> std::string {
    try {
      const ProgramStore store(folder, kPlenty);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  fs::permissions(folder_, fs::perms::group_write, fs::perm_options::add);
  EXPECT_THAT(error(folder_),
              AllOf(HasSubstr("LOCKSTEP_XLA_CACHE=" + folder_.string()), HasSubstr("writable by other")));
  std::ofstream(parent_.path() / "file") << "no folder";
  EXPECT_THAT(error(parent_.path() / "file"), HasSubstr("no folder"));
  EXPECT_THAT(error("/proc/lockstep"), HasSubstr("LOCKSTEP_XLA_CACHE=/proc/lockstep"));
}

TEST_F(ProgramStoreTest, WritersAndReadersShareAFolder) {
  const ProgramStore small(folder_, 20'000);
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 100; ++round) {
        const std::string key = std::to_string((round + i) % 30);
        const auto program = small.find(key);
        if (program) {
          EXPECT_EQ(*program, std::string(1000, key[0]));
          ++found;
        } else {
          small.put(key, std::string(1000, key[0]));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(found, 0);
}

TEST(SlowCompilationTest, IsLoggedWhileItRuns) {
  std::mutex mutex;
  std::vector<std::string> lines;
  log::set_sink([&](log::Level, std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex);
    lines.emplace_back(line);
  });
  { const SlowCompilationNotice fast("fast", std::chrono::seconds(60)); }
  {
    const SlowCompilationNotice slow("a slow one", std::chrono::milliseconds(5));
    for (int i = 0; i < 2000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::lock_guard<std::mutex> lock(mutex);
      if (!lines.empty()) break;
    }
    EXPECT_EQ(lines.size(), 1u) << "before it ends";
  }
  log::set_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("a slow one"));
}

}  // namespace
}  // namespace lockstep::xla
