#include "lockstep/base/process_variable.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<char*> entries_of(char** list) {
  std::vector<char*> entries;
  while (*list != nullptr) entries.push_back(*list++);
  return entries;
}

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "(not set)" : value;
}

TEST(ProcessVariableTest, IsSetAndReplaced) {
  set_process_variable("LOCKSTEP_TEST_ONE", "1");
  set_process_variable("LOCKSTEP_TEST_ONE_MORE", "2");
  EXPECT_EQ(text_of("LOCKSTEP_TEST_ONE"), "1");
  set_process_variable("LOCKSTEP_TEST_ONE", "");
  EXPECT_EQ(text_of("LOCKSTEP_TEST_ONE"), "");
  EXPECT_EQ(text_of("LOCKSTEP_TEST_ONE_MORE"), "2");
  unsetenv("LOCKSTEP_TEST_ONE");
  EXPECT_EQ(text_of("LOCKSTEP_TEST_ONE"), "(not set)");
  setenv("LOCKSTEP_TEST_ONE", "3", 1);  // the C library goes on with the list
  set_process_variable("LOCKSTEP_TEST_ONE", "4");
  EXPECT_EQ(text_of("LOCKSTEP_TEST_ONE"), "4");
  unsetenv("LOCKSTEP_TEST_ONE");
  unsetenv("LOCKSTEP_TEST_ONE_MORE");
  EXPECT_THROW(set_process_variable("", "1"), c10::ValueError);
  EXPECT_THROW(set_process_variable("A=B", "1"), c10::ValueError);
}

// A thread inside getenv goes through the list that it began with.
TEST(ProcessVariableTest, NothingThatOthersReadIsChanged) {
  set_process_variable("LOCKSTEP_TEST_READ", "before");
  for (int i = 0; i < 100; ++i) {
    char** const list = environ;
    const auto entries = entries_of(list);
    const std::string last = entries.back();
    char* const value = std::getenv("LOCKSTEP_TEST_READ");
    const std::string read = value;
    set_process_variable("LOCKSTEP_TEST_ADDED_" + std::to_string(i), std::string(100, 'x'));
    set_process_variable("LOCKSTEP_TEST_READ", "after " + std::to_string(i));
    EXPECT_EQ(entries_of(list), entries);
    EXPECT_EQ(entries.back(), last);
    EXPECT_EQ(std::string(value), read);
  }
  for (int i = 0; i < 100; ++i) unsetenv(("LOCKSTEP_TEST_ADDED_" + std::to_string(i)).c_str());
}

TEST(ProcessVariableTest, ThreadsMayReadMeanwhile) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!is_over) EXPECT_NE(text_of("PATH"), "(not set)");
    });
  }
  for (int i = 0; i < 2000; ++i) set_process_variable("LOCKSTEP_TEST_MEANWHILE_" + std::to_string(i % 500), "value");
  is_over = true;
  for (auto& reader : readers) reader.join();
  for (int i = 0; i < 500; ++i) unsetenv(("LOCKSTEP_TEST_MEANWHILE_" + std::to_string(i)).c_str());
}

}  // namespace
}  // namespace lockstep
