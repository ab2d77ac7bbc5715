#include "lockstep/device/logical_devices.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kCpu2 = "/job:localhost/replica:0/task:0/device:CPU:2";

class LogicalDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override { reset_logical_devices(); }
  void TearDown() override { reset_logical_devices(); }
};

std::string message_of_finding(std::string_view name) {
  try {
    find_logical_device(name);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST_F(LogicalDevicesTest, ThereIsOneCpuAndOneDeviceForEachCard) {
  EXPECT_EQ(list_physical_devices("CPU").size(), 1u);
  EXPECT_EQ(list_logical_devices("CPU").size(), 1u);
  EXPECT_EQ(list_logical_devices("GPU").size(), list_physical_devices("GPU").size());
  EXPECT_EQ(list_logical_devices("FOO").size(), 0u);
}

TEST_F(LogicalDevicesTest, SeveralCpusShareOneTorchDevice) {
  set_logical_devices("CPU", 4);
  const std::vector<LogicalDevice> devices = list_logical_devices("CPU");
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(devices[2].name, kCpu2);
  EXPECT_EQ(devices[2].type, "CPU");
  EXPECT_EQ(devices[2].index, 2);
  EXPECT_EQ(devices[2].torch_device, c10::Device(c10::kCPU));
}

TEST_F(LogicalDevicesTest, MayBeSetAgainAndReset) {
  set_logical_devices("CPU", 4);
  set_logical_devices_per_physical("CPU", {3});
  EXPECT_EQ(list_logical_devices("CPU").size(), 3u);
  reset_logical_devices();
  EXPECT_EQ(list_logical_devices("CPU").size(), 1u);
}

TEST_F(LogicalDevicesTest, TheEnvironmentGivesTheDefault) {
  setenv("LOCKSTEP_LOGICAL_CPUS", "3", 1);
  EXPECT_EQ(list_logical_devices("CPU").size(), 3u);
  setenv("LOCKSTEP_LOGICAL_CPUS", "0", 1);
  EXPECT_THROW(list_logical_devices("CPU"), c10::ValueError);
  unsetenv("LOCKSTEP_LOGICAL_CPUS");
}

TEST_F(LogicalDevicesTest, RefusesImpossibleNumbersAndTypes) {
  EXPECT_THROW(set_logical_devices("CPU", 0), c10::ValueError);
  EXPECT_THROW(set_logical_devices("CPU", 5000), c10::ValueError);
  EXPECT_THROW(set_logical_devices("FOO", 1), c10::ValueError);
  EXPECT_THROW(set_logical_devices_per_physical("CPU", {1, 1}), c10::ValueError);
  EXPECT_THROW(set_logical_devices_per_physical("CPU", {-1}), c10::ValueError);
}

TEST_F(LogicalDevicesTest, SaysWhichDevicesThereAreAndHowToHaveMore) {
  EXPECT_FALSE(has_logical_device(kCpu2));
  EXPECT_THAT(message_of_finding(kCpu2), AllOf(HasSubstr("device='/job:localhost/replica:0/task:0/device:CPU:2'"),
                                               HasSubstr("existing=[/job:localhost/replica:0/task:0/device:CPU:0"),
                                               HasSubstr("set_logical_devices(\"CPU\", 3)")));
  EXPECT_THAT(message_of_finding("/job:localhost/replica:0/task:0/device:TPU:0"),
              HasSubstr("call initialize_tpu_system first"));
  EXPECT_THAT(message_of_finding("/job:worker/replica:0/task:0/device:CPU:0"), HasSubstr("other processes"));
  set_logical_devices("CPU", 3);
  EXPECT_EQ(find_logical_device(kCpu2).index, 2);
}

TEST_F(LogicalDevicesTest, MayBeUsedFromSeveralThreads) {
  std::thread writer([] {
    for (int i = 1; i <= 200; ++i) set_logical_devices("CPU", 1 + i % 4);
  });
  for (int i = 0; i < 200; ++i) {
    const size_t count = list_logical_devices("CPU").size();
    EXPECT_TRUE(count >= 1 && count <= 4) << count;
  }
  writer.join();
}

}  // namespace
}  // namespace lockstep
