#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "lockstep/api.h"
#include "lockstep/base/backoff.h"
#include "lockstep/device/stream.h"

namespace lockstep::detail {

class HostCopier;

/// Copies tensors to one device ahead of their use, concurrently with computation: on a stream of its own and, from
/// page-locked memory, asynchronously. On the CPU a tensor is its own copy.
///
/// Every copy has memory of its own, as LibTorch's copies have. Parts of one allocation would live as long as the last
/// of them: a program that keeps the labels of its batches would keep the images, too.
class LOCKSTEP_API Uploader {
 public:
  /// `copier` copies large tensors of ordinary memory to page-locked memory; null: the thread of `upload` does.
  explicit Uploader(c10::Device device, std::shared_ptr<HostCopier> copier = nullptr);
  /// Waits until the memory that copies read is not read any more.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  c10::Device device() const { return device_; }

  /// Starts to copy. Call it on any one thread. A tensor in page-locked memory that nobody else has is read in place,
  /// and kept until it has been read. Set `is_borrowed` where other tensors may use its memory: it is then copied
  /// first. So is every other tensor, which may be written to at once. Large ones go through page-locked memory in
  /// parts: one is uploaded while the next is copied. Waits while two large steps are being copied: a host that is
  /// faster than the bus would take ever more memory.
  at::Tensor upload(const at::Tensor& tensor, bool is_borrowed = false);

  /// Ends a step: returns an event after which its copies may be used.
  std::optional<StreamEvent> ready();

  /// Called on the thread that uses a copy, before its use: orders its current stream after `ready`, and defers reuse
  /// of the memory until that stream has finished.
  static void use(const at::Tensor& copy, const std::optional<StreamEvent>& ready);

 private:
  /// One step is copied while the next one is made.
  static constexpr size_t kMostSteps = 2;
  /// Smaller steps wait in any number.
  static constexpr size_t kMostBytes = size_t{64} << 20;

  /// The copies of a step.
  struct InFlight {
    /// After it the copy stream has read the sources.
    StreamEvent read;
    std::vector<at::Tensor> sources;
    size_t num_bytes = 0;
  };

  at::Tensor upload_by_libtorch(const at::Tensor& tensor);
  void upload_in_parts(const at::Tensor& tensor, const at::Tensor& copy);
  /// Releases the sources that have been read.
  void release_read();
  void wait_for_room();

  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::shared_ptr<HostCopier> copier_;
  /// Since the last `ready`.
  std::vector<at::Tensor> sources_;
  size_t num_bytes_ = 0;
  std::deque<InFlight> in_flight_;
  size_t bytes_in_flight_ = 0;
  Patience patience_;
};

}  // namespace lockstep::detail
