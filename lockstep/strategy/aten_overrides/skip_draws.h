#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives, the calling thread does not initialize tensors of 64 MiB and more with random numbers: for modules
/// that take their values from another module afterwards.
///
/// The system allocates pages at the first write, so such a tensor costs neither memory nor time. It contains zeros.
class SkipLargeDraws {
 public:
  SkipLargeDraws();
  ~SkipLargeDraws();
  SkipLargeDraws(const SkipLargeDraws&) = delete;
  SkipLargeDraws& operator=(const SkipLargeDraws&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace lockstep::detail
