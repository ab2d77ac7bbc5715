#pragma once

#include <cstddef>

#include "lockstep/api.h"

namespace lockstep::xla {

class Plugin;

/// PJRT_Buffer_Type.
enum class ElementType : int {
  Pred = 1,
  S8 = 2,
  S16 = 3,
  S32 = 4,
  S64 = 5,
  U8 = 6,
  F16 = 10,
  F32 = 11,
  F64 = 12,
  BF16 = 13
};

/// Memory on one device.
class LOCKSTEP_API Buffer {
 public:
  Buffer() = default;
  Buffer(const Plugin& plugin, void* handle) : plugin_(&plugin), handle_(handle) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  explicit operator bool() const { return handle_ != nullptr; }
  void* handle() const { return handle_; }
  size_t device_bytes() const;
  /// Whether a program has taken over its memory.
  bool is_deleted() const;
  /// Waits until the contents are computed, then copies them to the host.
  void download(void* to, size_t bytes) const;
  /// Waits until the contents are computed; throws the error of the computation if it failed.
  void wait() const;

 private:
  const Plugin* plugin_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace lockstep::xla
