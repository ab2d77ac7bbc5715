#pragma once

#include <optional>

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives and is on, the calling thread looks up rows of large tables on the CPU (`torch::embedding` with
/// sparse gradients) by asking the memory for rows ahead of their use, which LibTorch does not. Values and gradients
/// are the same, to the bit.
class TableLookups {
 public:
  /// Tells LibTorch of it; call it once where few threads compute, before the first is made.
  static void prepare();

  explicit TableLookups(bool on);

 private:
  std::optional<c10::impl::IncludeDispatchKeyGuard> guard_;
};

}  // namespace lockstep::detail
