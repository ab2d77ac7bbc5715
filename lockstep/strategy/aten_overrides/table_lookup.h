#pragma once

#include <optional>

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives and is on, lookups of rows of large tables on the CPU (`torch::embedding` with sparse gradients) on
/// the calling thread prefetch rows into the cache. Values and gradients have the same bits as LibTorch's.
class TableLookups {
 public:
  /// Registers the function with LibTorch. Called before the first lookup, while few threads compute.
  static void prepare();

  explicit TableLookups(bool on);

 private:
  std::optional<c10::impl::IncludeDispatchKeyGuard> guard_;
};

}  // namespace lockstep::detail
