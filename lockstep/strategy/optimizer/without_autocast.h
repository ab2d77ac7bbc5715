#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "lockstep/device/autocast_dtype.h"

namespace lockstep::detail {

/// Internal: while it lives, the calling thread and those that compute for it do not cast. Backward computes in the
/// types of forward, updates in those of parameters. Afterwards copies of parameters that autocast has stored are
/// dropped, if `drops_copies`: an update makes them wrong.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(bool drops_copies)
      : drops_copies_(drops_copies && (is_autocast_on(at::kCPU) || is_autocast_on(at::kCUDA))),
        excluded_(c10::DispatchKeySet({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})) {}
  ~WithoutAutocast() {
    if (drops_copies_) at::autocast::clear_cache();
  }
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  const bool drops_copies_;
  const c10::impl::ExcludeDispatchKeyGuard excluded_;
};

}  // namespace lockstep::detail
