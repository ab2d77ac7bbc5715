#pragma once

#include <memory>
#include <vector>

#include "lockstep/xla/graph/trace.h"
#include "lockstep/xla/tensor/xla_device.h"

namespace lockstep::xla {

/// Internal: what is pending on one device, taken off its list. The destructor puts back what was not executed.
class PendingWork {
 public:
  explicit PendingWork(XlaDevice& device);
  PendingWork(PendingWork&& other) noexcept = default;
  PendingWork& operator=(PendingWork&&) = delete;
  ~PendingWork();

  XlaDevice& device() const { return *device_; }
  /// Its storages may be destroyed by other threads: use them under the lock of the device.
  const Pending& pending() const { return *pending_; }
  const Trace& trace() const { return trace_; }
  Trace& trace() { return trace_; }
  bool empty() const { return pending_->results.empty(); }

  /// The values have been computed: their storages are no longer pending.
  void executed() { device_->executed(*pending_); }

 private:
  XlaDevice* device_;
  std::unique_ptr<Pending> pending_;
  Trace trace_;
};

}  // namespace lockstep::xla
