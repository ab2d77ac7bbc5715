#include "lockstep/device/upload.h"

#include <memory>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "lockstep/device/host_copier.h"

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

TEST_F(UploaderCudaTest, AnyFormOfATensor) {
  Uploader uploader(device_, std::make_shared<HostCopier>(4));
  const at::Tensor large = at::arange(9 << 20, at::kFloat).view({9, 1024, 4, 256});  // several parts
  for (const at::Tensor& tensor :
       {large, large.contiguous(at::MemoryFormat::ChannelsLast), large.transpose(1, 3), large.narrow(1, 3, 1000),
        large.narrow(0, 1, 4), large.to(at::kBFloat16), large.to(at::kByte), at::empty({0, 3}), at::scalar_tensor(2),
        at::ones({3}, at::kBool), at::ones({5}, at::kComplexDouble), at::ones({2, 3}, at::kComplexFloat).conj(),
        at::ones({4}).expand({3, 4})}) {
    for (const bool pinned : {false, true}) {
      if (pinned && !tensor.is_non_overlapping_and_dense()) continue;  // LibTorch makes no page-locked copy of these
      SCOPED_TRACE(c10::str(tensor.sizes(), " ", tensor.strides(), " ", tensor.scalar_type(), " ", pinned));
      at::Tensor source = pinned ? tensor.pin_memory() : tensor.clone();
      const at::Tensor copy = uploader.upload(pinned ? source : tensor);
      auto ready = uploader.ready();
      Uploader::use(copy, ready);
      EXPECT_TRUE(at::equal(copy.cpu(), source));
      EXPECT_EQ(copy.scalar_type(), tensor.scalar_type());
      if (!pinned && tensor.is_non_overlapping_and_dense()) {
        EXPECT_EQ(copy.strides(), tensor.strides());
      }
    }
  }
}

TEST_F(UploaderCudaTest, OrdinaryMemoryMayBeWrittenAtOnce) {
  Uploader uploader(device_, std::make_shared<HostCopier>(4));
  at::Tensor tensor = at::empty({20 << 20}, at::kByte);
  for (int64_t turn = 0; turn < 20; ++turn) {
    tensor.fill_(turn);
    const at::Tensor copy = uploader.upload(tensor);
    tensor.fill_(100);
    auto ready = uploader.ready();
    Uploader::use(copy, ready);
    ASSERT_EQ(copy.min().item<int64_t>(), turn);
    ASSERT_EQ(copy.max().item<int64_t>(), turn);
  }
}

TEST_F(UploaderCudaTest, PageLockedMemoryLivesUntilItWasRead) {
  std::vector<at::Tensor> copies;
  std::vector<std::optional<StreamEvent>> ready;
  {
    Uploader uploader(device_);
    for (int64_t turn = 0; turn < 40; ++turn) {
      at::Tensor owner = at::empty({16 << 20}, at::TensorOptions().dtype(at::kByte).pinned_memory(true)).fill_(turn);
      // LibTorch does not know whose memory this is.
      char* const data = static_cast<char*>(owner.data_ptr());
      const at::Tensor row = at::from_blob(
          data + 64, {15 << 20}, [owner](void*) {}, at::kByte);
      owner.reset();
      copies.push_back(uploader.upload(row));
      ready.push_back(uploader.ready());
    }
  }
  for (size_t turn = 0; turn < copies.size(); ++turn) {
    Uploader::use(copies[turn], ready[turn]);
    ASSERT_EQ(copies[turn].min().item<int64_t>(), static_cast<int64_t>(turn));
    ASSERT_EQ(copies[turn].max().item<int64_t>(), static_cast<int64_t>(turn));
  }
}

TEST_F(UploaderCudaTest, BorrowedPageLockedMemoryMayBeWrittenAtOnce) {
  Uploader uploader(device_);
  at::Tensor owner = at::empty({64 << 20}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  for (int64_t turn = 0; turn < 20; ++turn) {
    owner.fill_(turn);
    const at::Tensor borrowed = at::from_blob(
        owner.data_ptr(), owner.sizes(), [owner](void*) {}, owner.options());
    const at::Tensor copy = uploader.upload(borrowed, /*is_borrowed=*/true);
    owner.fill_(100);
    auto ready = uploader.ready();
    Uploader::use(copy, ready);
    ASSERT_EQ(copy.min().item<int64_t>(), turn);
    ASSERT_EQ(copy.max().item<int64_t>(), turn);
  }
}

TEST_F(UploaderCudaTest, GradientsFlowThroughACopy) {
  Uploader uploader(device_);
  const at::Tensor tensor = at::ones({1000}).set_requires_grad(true);
  const at::Tensor copy = uploader.upload(tensor);
  auto ready = uploader.ready();
  Uploader::use(copy, ready);
  EXPECT_TRUE(copy.requires_grad());
  EXPECT_TRUE(at::equal(copy.detach().cpu(), tensor.detach()));
}

TEST_F(UploaderCudaTest, ATensorOfTheDeviceIsNotCopied) {
  Uploader uploader(device_);
  const at::Tensor tensor = at::ones({4}, device_);
  EXPECT_TRUE(uploader.upload(tensor).is_same(tensor));
}

}  // namespace
}  // namespace lockstep::detail
