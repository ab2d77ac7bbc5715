#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives, tensors of 64 MiB and more that the calling thread makes on the CPU ask the system for large pages.
///
/// A table of which single rows are read costs a look into the page tables for each row; with pages of 2 MiB that is in
/// the processor's caches. It is a wish: where the system has none, or gives none, nothing changes.
class LargePages {
 public:
  LargePages();
  ~LargePages();
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace lockstep::detail
