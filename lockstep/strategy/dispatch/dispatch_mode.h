#pragma once

#include <cstddef>
#include <functional>

#include <c10/core/DispatchKey.h>

namespace torch {
class Library;
}

/// Inside: how lockstep does single functions of LibTorch in its own way, on threads that ask for it and nowhere else.
namespace lockstep::detail {

/// The key under which such functions are registered. A thread that includes it (c10::impl::IncludeDispatchKeyGuard)
/// calls them in place of LibTorch's; all others fall through to LibTorch.
///
/// It is one that LibTorch has for modules whose values are made later, which is the first thing that it is used for.
inline constexpr c10::DispatchKey kModeKey = c10::DispatchKey::DeferredInit;

/// Tensors of this size are treated on their own: the C library takes their memory from the system at once, zeroed and
/// unused.
inline constexpr size_t kLargeBytes = size_t{64} << 20;

/// Registers functions of LibTorch's namespace `aten` under the key, for as long as the process lives. Returns true,
/// for a static variable of the caller, who does it once and before the key is included.
bool register_mode_functions(const std::function<void(torch::Library&)>& add);

}  // namespace lockstep::detail
