#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Copies tensors to one device ahead of their use, beside what the device computes: on a stream of its own and, from
/// page-locked memory, without the host waiting. On the CPU a tensor is its own copy.
class LOCKSTEP_API Uploader {
 public:
  explicit Uploader(c10::Device device);

  /// Starts to copy. Call it on any one thread.
  at::Tensor upload(const at::Tensor& tensor);

  /// What must have happened before the copies that were started so far may be used.
  std::optional<c10::Event> ready() const;

  /// On the thread that uses a copy, before it does: orders its current stream after `ready`, and keeps the memory from
  /// being used anew before that stream is through with it.
  static void use(const at::Tensor& copy, std::optional<c10::Event>& ready);

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace lockstep::detail
