#pragma once

#include <string_view>
#include <type_traits>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep::detail {

/// Internal: debug info is the part of LibTorch's thread-local state that programs may add to. LibTorch gives it to the
/// threads that compute for the calling one, as backward passes do. Its kinds are small numbers, in later versions
/// pointers to names. `number` must be above LibTorch's own; `name` must live as long as the process.
template <class Kind = c10::DebugInfoKind>
Kind debug_info_kind(int number, const std::string_view* name) {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(number);
  } else {
    return Kind(name);
  }
}

}  // namespace lockstep::detail
