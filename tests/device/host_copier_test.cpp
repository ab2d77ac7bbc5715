#include "lockstep/device/host_copier.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

/// Bytes that differ between neighbours and repeat only after 251.
std::vector<char> pattern(size_t size) {
  std::vector<char> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i % 251);
  return bytes;
}

/// Notes copies of parts of these sizes in reverse order, so that none continues another.
HostCopies reversed(const std::vector<size_t>& sizes, std::vector<char>& to, const std::vector<char>& from) {
  HostCopies copies;
  size_t end = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  for (const size_t size : sizes) {
    end -= size;
    copies.add(to.data() + end, from.data() + end, size);
  }
  return copies;
}

TEST(HostCopiesTest, AnyDivisionCopiesEveryByteOnce) {
  const std::vector<size_t> sizes{1, 0, 7, 300, 2, 64, 1};
  const size_t total = 375;
  const std::vector<char> from = pattern(total);
  for (size_t each = 1; each <= total; each += 13) {
    std::vector<char> to(total);
    const HostCopies copies = reversed(sizes, to, from);
    EXPECT_EQ(copies.num_bytes(), total);
    for (size_t begin = 0; begin < total; begin += each) copies.copy(begin, std::min(begin + each, total));
    EXPECT_EQ(to, from) << each;
  }
}

TEST(HostCopiesTest, OnlyTheBytesAskedForAreCopied) {
  const std::vector<char> from = pattern(100);
  std::vector<char> to(100, 'x');
  HostCopies copies;
  for (size_t i = 0; i < 10; ++i) copies.add(to.data() + 10 * i, from.data() + 10 * i, 10);  // one part
  copies.copy(15, 15);
  copies.copy(15, 85);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(to[i], i < 15 || i >= 85 ? 'x' : from[i]) << i;
  copies.clear();
  EXPECT_EQ(copies.num_bytes(), 0U);
  copies.copy(0, 0);
}

TEST(HostCopierTest, ThreadsCopyWhatOneCopies) {
  for (const int threads : {1, 2, 3, 8}) {
    HostCopier copier(threads);
    for (const size_t total : {size_t{100}, HostCopier::kLeastBytes - 1, HostCopier::kLeastBytes, size_t{5000011}}) {
      SCOPED_TRACE(c10::str(threads, " threads, ", total, " bytes"));
      const std::vector<char> from = pattern(total);
      std::vector<char> to(total);
      copier.copy(to.data(), from.data(), total);
      EXPECT_EQ(to, from);
      std::vector<char> parts(total);
      copier.copy(reversed({total / 3, total / 7, total - total / 3 - total / 7}, parts, from));
      EXPECT_EQ(parts, from);
    }
  }
}

TEST(HostCopierTest, AnErrorEndsTheLoop) {
  HostCopier copier(3);
  const auto fail = [](int64_t index) {
    if (index == 5) throw std::runtime_error("five");
  };
  EXPECT_THROW(copier.for_each(20, fail), std::runtime_error);
  std::atomic<int> calls{0};
  copier.for_each(20, [&](int64_t) { ++calls; });
  EXPECT_EQ(calls, 20);
}

TEST(HostCopierTest, SeveralCallersAtOnce) {
  HostCopier copier(4);
  const std::vector<char> from = pattern(3 << 20);
  std::vector<std::vector<char>> copies(3);
  std::vector<std::thread> callers;
  for (auto& to : copies) {
    callers.emplace_back([&] {
      for (int turn = 0; turn < 5; ++turn) {
        to.assign(from.size(), 0);
        copier.copy(to.data(), from.data(), from.size());
        if (to != from) break;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& to : copies) EXPECT_EQ(to, from);
}

TEST(HostCopierTest, ACloneHasItsOwnMemoryAndTheStrides) {
  HostCopier copier(2);
  const at::Tensor image = at::arange(2 * 3 * 400 * 400).view({2, 3, 400, 400}).to(at::kFloat);
  const at::Tensor last = image.contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& tensor : {image, last, image.transpose(0, 3), image.narrow(2, 1, 7), image.narrow(0, 1, 1),
                                   image.expand({5, 2, 3, 400, 400}), at::empty({0, 3}), at::scalar_tensor(3),
                                   at::ones({3}, at::kBool), at::ones({2, 2}, at::kComplexDouble)}) {
    const at::Tensor copy = copier.clone(tensor, /*pin_memory=*/false);
    EXPECT_TRUE(at::equal(copy, tensor)) << tensor.sizes();
    EXPECT_EQ(copy.scalar_type(), tensor.scalar_type());
    EXPECT_FALSE(copy.is_alias_of(tensor));
    if (tensor.is_non_overlapping_and_dense()) {
      EXPECT_EQ(copy.strides(), tensor.strides());
    }
  }
}

TEST(HostCopierTest, ThreadsAreAShareOfTheCores) {
  EXPECT_GE(HostCopier::threads_for(1, 1), 1);
  EXPECT_LE(HostCopier::threads_for(1, 1), HostCopier::threads_for(2, 1));
  EXPECT_EQ(HostCopier::threads_for(1, 1'000'000), 1);
  EXPECT_EQ(HostCopier(0).num_threads(), 1);
}

TEST(HostCopierTest, WhichTensorsAreBytes) {
  EXPECT_TRUE(is_plain_on_cpu(at::ones({2}).narrow(0, 1, 1)));
  EXPECT_FALSE(is_plain_on_cpu(at::Tensor()));
  EXPECT_FALSE(is_plain_on_cpu(at::ones({2}).set_requires_grad(true)));
  EXPECT_FALSE(is_plain_on_cpu(at::ones({2}).to_sparse()));
  EXPECT_FALSE(is_plain_on_cpu(at::ones({2}, at::kComplexFloat).conj()));
  EXPECT_FALSE(is_plain_on_cpu(at::ones({2}, at::kMeta)));
  EXPECT_FALSE(is_plain_on_cpu(at::quantize_per_tensor(at::ones({2}), 1.0, 0, at::kQInt8)));
}

}  // namespace
}  // namespace lockstep::detail
