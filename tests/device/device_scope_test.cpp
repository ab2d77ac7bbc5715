#include "lockstep/device/device_scope.h"

#include <thread>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(DeviceScopeTest, ThereIsNoneAtFirst) {
  EXPECT_EQ(current_device(), "");
  EXPECT_EQ(resolve("/cpu:1"), "/job:localhost/replica:0/task:0/device:CPU:1");
}

TEST(DeviceScopeTest, InnerScopesOverrideWhatTheySpecify) {
  DeviceScope outer("/job:worker/cpu:1");
  {
    DeviceScope inner("/cpu:2");
    EXPECT_EQ(current_device(), "/job:worker/replica:0/task:0/device:CPU:2");
    EXPECT_EQ(current_device(MissingJob::kLeftOut), "/job:worker/device:CPU:2");
  }
  EXPECT_EQ(resolve(""), "/job:worker/replica:0/task:0/device:CPU:1");
}

TEST(DeviceScopeTest, NulloptHidesOuterScopes) {
  DeviceScope outer("/cpu:1");
  DeviceScope hidden(std::nullopt);
  EXPECT_EQ(current_device(), "");
  DeviceScope inner("/task:0");
  EXPECT_EQ(resolve(""), "/job:localhost/replica:0/task:0/device:CPU:0");
}

TEST(DeviceScopeTest, BelongsToItsThread) {
  DeviceScope scope("/cpu:1");
  std::string elsewhere = "not asked";
  std::thread([&] { elsewhere = current_device(); }).join();
  EXPECT_EQ(elsewhere, "");
}

TEST(DeviceScopeTest, AFaultyStringLeavesNoScope) {
  EXPECT_THROW(DeviceScope("/foo:1"), c10::ValueError);
  EXPECT_EQ(current_device(), "");
}

}  // namespace
}  // namespace lockstep
