#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Copies tensors to one device ahead of their use, concurrently with computation: on a stream of its own and, from
/// page-locked memory, asynchronously. On the CPU a tensor is its own copy.
class LOCKSTEP_API Uploader {
 public:
  explicit Uploader(c10::Device device);
  c10::Device device() const { return device_; }

  /// Starts to copy. Call it on any one thread.
  at::Tensor upload(const at::Tensor& tensor);

  /// An event after which the copies that were started so far may be used.
  std::optional<c10::Event> ready() const;

  /// Called on the thread that uses a copy, before its use: orders its current stream after `ready`, and defers reuse
  /// of the memory until that stream has finished.
  static void use(const at::Tensor& copy, std::optional<c10::Event>& ready);

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace lockstep::detail
