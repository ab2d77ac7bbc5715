#pragma once

#include <vector>

#include "lockstep/xla/graph/trace.h"
#include "lockstep/xla/tensor/xla_device.h"

namespace lockstep::xla {

/// Internal: what is pending on one device, taken off its list. The destructor puts back what was not executed.
class PendingWork {
 public:
  explicit PendingWork(XlaDevice& device);
  PendingWork(PendingWork&& other) noexcept;
  PendingWork& operator=(PendingWork&&) = delete;
  ~PendingWork();

  XlaDevice& device() const { return *device_; }
  const Pending& pending() const { return pending_; }
  const Trace& trace() const { return trace_; }
  Trace& trace() { return trace_; }
  bool empty() const { return pending_.results.empty(); }

  /// The values have been computed: their storages are no longer pending.
  void executed();

 private:
  XlaDevice* device_;
  Pending pending_;
  Trace trace_;
};

}  // namespace lockstep::xla
