#include "lockstep/device/upload.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

TEST(UploaderTest, OnTheCpuATensorIsItsOwnCopy) {
  Uploader uploader(at::kCPU);
  const at::Tensor tensor = at::arange(6);
  const at::Tensor copy = uploader.upload(tensor);
  EXPECT_TRUE(copy.is_same(tensor));
  auto ready = uploader.ready();
  EXPECT_FALSE(ready.has_value());
  EXPECT_NO_THROW(Uploader::use(copy, ready));
}

TEST(UploaderTest, CopiesToADeviceWithoutStreams) {
  Uploader uploader(at::kMeta);
  const at::Tensor copy = uploader.upload(at::ones({2, 3}));
  EXPECT_TRUE(copy.is_meta());
  EXPECT_EQ(copy.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_FALSE(uploader.ready().has_value());
}

class UploaderCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }

  const at::Device device_{at::kCUDA, 0};
};

TEST_F(UploaderCudaTest, ACopyIsReadyForTheCurrentStream) {
  Uploader uploader(device_);
  for (const bool pinned : {false, true}) {
    at::Tensor tensor = at::arange(1 << 20, at::kFloat);
    if (pinned) tensor = tensor.pin_memory();
    const at::Tensor copy = uploader.upload(tensor);
    auto ready = uploader.ready();
    ASSERT_TRUE(ready.has_value());
    Uploader::use(copy, ready);
    EXPECT_EQ(copy.device(), device_);
    EXPECT_TRUE(at::equal((copy + 1).cpu(), tensor + 1)) << "pinned=" << pinned;
  }
}

TEST_F(UploaderCudaTest, ATensorOfTheDeviceIsNotCopied) {
  Uploader uploader(device_);
  const at::Tensor tensor = at::ones({4}, device_);
  EXPECT_TRUE(uploader.upload(tensor).is_same(tensor));
}

}  // namespace
}  // namespace lockstep::detail
