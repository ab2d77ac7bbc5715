#include "lockstep/device/host_copier.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include <ATen/ATen.h>

#include "lockstep/device/thread_share.h"

namespace lockstep::detail {
namespace {

/// What a thread copies at a time: small enough that all threads end at nearly the same time.
constexpr size_t kMostAtOnce = size_t{1} << 20;
/// More threads for one GPU are not faster: they have the bandwidth of its bus.
constexpr int kThreadsForOneGpu = 12;
constexpr int kMostThreads = 16;

/// Takes the threads for one caller.
class BusyScope {
 public:
  explicit BusyScope(std::atomic<bool>& flag) : flag_(flag), has_threads_(!flag.exchange(true)) {}
  ~BusyScope() {
    if (has_threads_) flag_.store(false);
  }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;
  bool has_threads() const { return has_threads_; }

 private:
  std::atomic<bool>& flag_;
  bool has_threads_;
};

}  // namespace

void HostCopies::add(char* to, const char* from, size_t num_bytes) {
  if (num_bytes == 0) return;
  const bool continues = !parts_.empty() && parts_.back().to + parts_.back().num_bytes == to &&
                         parts_.back().from + parts_.back().num_bytes == from;
  if (continues) {
    parts_.back().num_bytes += num_bytes;
  } else {
    parts_.push_back({to, from, num_bytes_, num_bytes});
  }
  num_bytes_ += num_bytes;
}

void HostCopies::clear() {
  parts_.clear();
  num_bytes_ = 0;
}

void HostCopies::copy(size_t begin, size_t end) const {
  if (begin >= end) return;
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), begin,
                                      [](size_t offset, const Part& part) { return offset < part.begin; });
  for (auto part = after - 1; part != parts_.end() && part->begin < end; ++part) {
    const size_t first = std::max(begin, part->begin) - part->begin;
    const size_t last = std::min(end - part->begin, part->num_bytes);
    std::memcpy(part->to + first, part->from + first, last - first);
  }
}

HostCopier::HostCopier(int num_threads) : num_threads_(std::max(1, num_threads)) {}

int HostCopier::threads_for(int num_gpus, int num_processes) {
  const int most = std::min(kThreadsForOneGpu * std::max(1, num_gpus), kMostThreads);
  return std::clamp(3 * num_hardware_threads() / (4 * std::max(1, num_processes)), 1, most);
}

void HostCopier::copy(const HostCopies& copies) {
  const size_t total = copies.num_bytes();
  if (total < kLeastBytes || num_threads_ == 1) return copies.copy(0, total);
  // The same number of threads each time: OpenMP would end those that it does not need, and start them again.
  const auto least = static_cast<size_t>(4 * num_threads_);
  const size_t count = std::max(least, (total + kMostAtOnce - 1) / kMostAtOnce);
  const size_t each = (total + count - 1) / count;
  for_each(static_cast<int64_t>(count), [&](int64_t index) {
    const size_t begin = static_cast<size_t>(index) * each;
    copies.copy(begin, std::min(begin + each, total));
  });
}

void HostCopier::copy(char* to, const char* from, size_t num_bytes) {
  HostCopies copies;
  copies.add(to, from, num_bytes);
  copy(copies);
}

void HostCopier::for_each(int64_t count, c10::function_ref<void(int64_t index)> work) {
  const BusyScope busy(is_busy_);
  const ThreadShare share(busy.has_threads() ? num_threads_ : 1);
  for_each_in_parallel(count, [&](int64_t index, int) { work(index); });
}

at::Tensor HostCopier::clone(const at::Tensor& tensor, bool pin_memory) {
  const auto options = tensor.options().pinned_memory(pin_memory);
  if (!tensor.is_non_overlapping_and_dense()) {
    at::Tensor copy = at::empty(tensor.sizes(), options);
    return copy.copy_(tensor);
  }
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), options);
  this->copy(static_cast<char*>(copy.data_ptr()), static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  return copy;
}

bool is_plain_on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() && tensor.has_storage() &&
         !tensor.requires_grad() && !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

bool is_only_handle(const at::Tensor& tensor) {
  if (tensor.use_count() != 1 || !tensor.has_storage()) return tensor.use_count() == 1;
  const c10::Storage& storage = tensor.storage();
  return storage.use_count() == 1 && (storage.data_ptr().get_context() != nullptr || storage.nbytes() == 0);
}

}  // namespace lockstep::detail
