#pragma once

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: what a module does around the updates of its parameters. Each replica calls it on its own thread, all of
/// them in the same order.
class LOCKSTEP_API UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;
  virtual void before_update(int replica) = 0;
  virtual void after_update(int replica) = 0;
};

}  // namespace lockstep::detail
