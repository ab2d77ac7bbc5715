#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch {
class Library;
}

/// Internal: replaces single LibTorch functions, only on threads that enable it.
namespace lockstep::detail {

/// The dispatch key of the replacements. A thread that includes it (c10::impl::IncludeDispatchKeyGuard) calls them;
/// other functions fall through to LibTorch. LibTorch defines the key for deferred initialization and does not use it
/// itself.
inline constexpr c10::DispatchKey kModeKey = c10::DispatchKey::DeferredInit;

/// The size of a large tensor: the C library maps its memory directly from the system, zeroed and untouched.
inline constexpr size_t kLargeBytes = size_t{64} << 20;

/// Registers functions of LibTorch's namespace `aten` under the key, for the lifetime of the process. Returns true, for
/// a static variable of the caller: each caller registers once, before the key is included.
bool register_mode_functions(const std::function<void(torch::Library&)>& add);

/// While it lives and is on, the calling thread calls the replacements.
class ReplicaMode {
 public:
  explicit ReplicaMode(bool on) {
    if (on) guard_.emplace(kModeKey);
  }

 private:
  std::optional<c10::impl::IncludeDispatchKeyGuard> guard_;
};

}  // namespace lockstep::detail
