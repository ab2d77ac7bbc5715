#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"

/// Internal: how batches for GPUs are copied on the host. One thread copies less than a bus carries.
namespace lockstep::detail {

/// Bytes that are to be copied, from many places to many places.
class LOCKSTEP_API HostCopies {
 public:
  /// Both ranges stay valid until the copy. Neighbours that continue each other are joined.
  void add(char* to, const char* from, size_t num_bytes);
  size_t num_bytes() const { return num_bytes_; }
  void clear();
  /// Copies the bytes [begin, end) of all of them, counted in the order of `add`.
  void copy(size_t begin, size_t end) const;

 private:
  struct Part {
    char* to;
    const char* from;
    /// The bytes of the parts before it.
    size_t begin;
    size_t num_bytes;
  };
  std::vector<Part> parts_;
  size_t num_bytes_ = 0;
};

/// Copies on several threads, those of LibTorch's own parallel loops, whatever share of them the calling thread has.
/// Any thread may use it; while one does so, others copy alone.
class LOCKSTEP_API HostCopier {
 public:
  /// Fewer bytes are copied by the calling thread.
  static constexpr size_t kLeastBytes = size_t{1} << 20;

  explicit HostCopier(int num_threads);
  /// Returns a number of threads for the batches of `num_gpus` GPUs, where `num_processes` processes share the cores:
  /// up to three quarters of them.
  static int threads_for(int num_gpus, int num_processes);

  int num_threads() const { return num_threads_; }

  void copy(const HostCopies& copies);
  void copy(char* to, const char* from, size_t num_bytes);
  /// Calls `work(index)` for every index below `count`. The first exception is rethrown when all have ended.
  void for_each(int64_t count, c10::function_ref<void(int64_t index)> work);
  /// Returns a copy in page-locked memory, or in ordinary memory, with the strides of the tensor if it has no gaps. The
  /// tensor is a plain one of the CPU (`is_plain_on_cpu`).
  at::Tensor clone(const at::Tensor& tensor, bool pin_memory);

 private:
  int num_threads_;
  std::atomic<bool> is_busy_{false};
};

/// Whether a tensor's values are bytes in memory of the CPU that a copy may be made of without LibTorch: strided, no
/// lazy conjugate or negation, not quantized, and no part of a gradient.
LOCKSTEP_API bool is_plain_on_cpu(const at::Tensor& tensor);

/// Whether nothing but this handle refers to the tensor and its memory, so that nobody else writes to it. Memory that
/// the tensor does not own, as that of `from_blob` without a deleter, is its maker's.
LOCKSTEP_API bool is_only_handle(const at::Tensor& tensor);

}  // namespace lockstep::detail
