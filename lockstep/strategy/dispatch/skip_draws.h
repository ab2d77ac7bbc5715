#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives, the calling thread draws no random numbers into tensors of 64 MiB and more: a module is made for its
/// structure alone, and takes its values from another one afterwards.
///
/// The system gives such tensors memory when they are first written, so that one whose numbers are never drawn costs
/// neither memory nor time. It begins as zeros.
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
