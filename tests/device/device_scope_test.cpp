#include "lockstep/device/device_scope.h"

#include <thread>

#include <ATen/ATen.h>
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
    EXPECT_EQ(current_device(MissingJob::LeftOut), "/job:worker/device:CPU:2");
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

TEST(DeviceScopeTest, TensorsCannotBeMadeOnAMissingDevice) {
  const DeviceScope scope("/gpu:77");
  EXPECT_THROW(at::zeros({2}), c10::ValueError);
  EXPECT_TRUE(at::zeros({2}, at::kCPU).is_cpu());
  const DeviceScope inner("/cpu:0");
  EXPECT_TRUE(at::zeros({2}).is_cpu());
}

TEST(PlacementTest, IsThatOfTheInnermostScope) {
  EXPECT_TRUE(at::zeros({2}).is_cpu());
  const detail::Placement outer{c10::Device(at::kMeta)};
  EXPECT_TRUE(at::zeros({2}).is_meta());
  EXPECT_TRUE(at::arange(3).is_meta());
  EXPECT_TRUE(at::zeros({2}, at::kLong).is_meta());
  EXPECT_TRUE(at::zeros({2}, at::kCPU).is_cpu()) << "a named device holds";
  EXPECT_TRUE(at::zeros_like(at::zeros({2}, at::kCPU)).is_cpu());
  {
    const detail::Placement none(std::nullopt);
    EXPECT_TRUE(at::zeros({2}).is_cpu());
  }
  {
    const detail::NoPlacement none;
    EXPECT_TRUE(at::zeros({2}).is_cpu());
  }
  EXPECT_TRUE(at::zeros({2}).is_meta());
  std::thread([] { EXPECT_TRUE(at::zeros({2}).is_cpu()); }).join();
}

TEST(PlacementTest, MemoryThatLibTorchWritesToIsOnTheCpu) {
  const detail::Placement placed{c10::Device(at::kMeta)};
  const std::vector<int64_t> values{1, 2};
  EXPECT_EQ(at::tensor(values)[1].item<int64_t>(), 2);
  EXPECT_TRUE(at::scalar_tensor(2).is_cpu());
}

}  // namespace
}  // namespace lockstep
