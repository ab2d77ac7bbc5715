#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives, the calling thread requests large pages for new CPU tensors of 64 MiB and more.
///
/// Each read of a single row of a table needs a page table lookup; with pages of 2 MiB it hits the processor's caches.
/// The system may ignore the request.
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
