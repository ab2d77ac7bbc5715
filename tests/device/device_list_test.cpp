#include "lockstep/device/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/logical_devices.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kCpu0 = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr const char* kCpu1 = "/job:localhost/replica:0/task:0/device:CPU:1";

class DeviceListTest : public ::testing::Test {
 protected:
  void SetUp() override { set_logical_devices("CPU", 2); }
  void TearDown() override { reset_logical_devices(); }
};

std::string message_of_resolving(const std::vector<std::string>& devices) {
  try {
    resolve_device_list(devices);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST_F(DeviceListTest, KeepsTheOrder) {
  EXPECT_THAT(resolve_device_list({"cpu:1", "CPU:0"}), ElementsAre(kCpu1, kCpu0));
}

TEST_F(DeviceListTest, AnEmptyListIsEveryGpuElseEveryCpu) {
  if (!list_physical_devices("GPU").empty()) GTEST_SKIP() << "the machine has a GPU";
  EXPECT_THAT(resolve_device_list({}), ElementsAre(kCpu0, kCpu1));
}

TEST_F(DeviceListTest, LocalhostAndNoJobAreOneWorker) {
  EXPECT_THAT(resolve_device_list({"/job:localhost/cpu:0", "/cpu:1"}), ElementsAre(kCpu0, kCpu1));
}

TEST_F(DeviceListTest, IsCompletedByTheDeviceScope) {
  DeviceScope scope("/cpu:1");
  EXPECT_THAT(resolve_device_list({""}), ElementsAre(kCpu1));
  DeviceScope remote("/job:worker/task:1");
  EXPECT_THAT(message_of_resolving({"/cpu:0"}), HasSubstr("other processes"));
}

TEST_F(DeviceListTest, SaysWhatIsWrong) {
  EXPECT_THAT(message_of_resolving({"cpu:0", "/device:CPU:0"}), HasSubstr("must not be there twice"));
  EXPECT_THAT(message_of_resolving({"cpu:9"}), HasSubstr("set_logical_devices(\"CPU\", 10)"));
  EXPECT_THAT(message_of_resolving({"/job:w/task:0/cpu:0", "cpu:0"}), HasSubstr("must not be mixed"));
  EXPECT_THAT(message_of_resolving({"/job:w/cpu:0"}), HasSubstr("must name its task"));
  EXPECT_THAT(message_of_resolving({"/job:w/task:0/cpu:0", "/job:w/task:1/cpu:0"}), HasSubstr("belong to one worker"));
  EXPECT_THAT(message_of_resolving({"/job:w/task:0/cpu:0"}), HasSubstr("there is no such device"));
}

TEST_F(DeviceListTest, GroupsByJobAndTask) {
  const DeviceGroups groups =
      group_device_list({"/job:chief/task:0/gpu:0", "/job:worker/task:1/gpu:0", "/job:worker/task:1/gpu:1"});
  EXPECT_THAT(groups.at("chief").at(0), ElementsAre("/job:chief/task:0/gpu:0"));
  EXPECT_THAT(groups.at("worker").at(1), ElementsAre("/job:worker/task:1/gpu:0", "/job:worker/task:1/gpu:1"));
  EXPECT_THROW(group_device_list({"cpu:0"}), c10::ValueError);
}

TEST_F(DeviceListTest, CountsTheGpusOfAWorker) {
  EXPECT_EQ(infer_num_gpus_per_worker({"gpu:0", "gpu:1", "cpu:0"}), 2);
  EXPECT_EQ(infer_num_gpus_per_worker({"/job:w/task:0/gpu:0", "/job:w/task:1/gpu:0"}), 1);
  EXPECT_THROW(infer_num_gpus_per_worker({"/job:w/task:0/gpu:0", "/job:w/task:1/cpu:0"}), c10::ValueError);
  EXPECT_THROW(infer_num_gpus_per_worker({"/job:w/task:0/gpu:1", "/job:w/task:1/gpu:1"}), c10::ValueError);
  EXPECT_THAT(local_devices_from_num_gpus(2), ElementsAre("/device:GPU:0", "/device:GPU:1"));
  EXPECT_THAT(local_devices_from_num_gpus(0), ElementsAre("/device:CPU:0"));
}

}  // namespace
}  // namespace lockstep
