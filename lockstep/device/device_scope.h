#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/placement.h"

namespace lockstep {

/// Completes device strings of this thread during its lifetime, and places tensors that are made without a device.
///
///     lockstep::DeviceScope scope("/gpu:1");
///     lockstep::resolve("");   // "/job:localhost/replica:0/task:0/device:GPU:1"
///     torch::zeros({2});       // on that device
///
/// Scopes nest: an inner one overrides the parts it specifies, and `DeviceScope(std::nullopt)` hides all outer ones.
/// They end in the reverse order in which they began, each on the thread that began it. If the device does not exist,
/// making a tensor without a device is a ValueError. `set_placement(false)` leaves tensors on the CPU.
class LOCKSTEP_API DeviceScope {
 public:
  /// Throws `c10::ValueError` when `device` does not parse.
  explicit DeviceScope(std::optional<std::string_view> device);
  ~DeviceScope();

  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  std::optional<detail::Placement> placement_;
};

/// Sets whether device scopes and the functions that `Strategy::run` calls place tensors: arguments of `run` move to
/// the replica's device, and factories such as `torch::zeros` without a device make tensors there. On by default; the
/// variable LOCKSTEP_PLACEMENT=0 turns it off at the start. Counts for scopes and runs that begin after the call.
LOCKSTEP_API void set_placement(bool on);
LOCKSTEP_API bool placement();

namespace detail {
/// Makes a replica's device current during its lifetime, hiding all scopes around it. Costs two stores.
class LOCKSTEP_API ReplicaDeviceScope {
 public:
  /// `canonical_name` must outlive the scope.
  explicit ReplicaDeviceScope(const std::string& canonical_name);
  ~ReplicaDeviceScope();
  ReplicaDeviceScope(const ReplicaDeviceScope&) = delete;
  ReplicaDeviceScope& operator=(const ReplicaDeviceScope&) = delete;

 private:
  const std::string* device_before_;
  size_t hidden_before_;
};
}  // namespace detail

/// Returns the combined device string of the device scopes of this thread, or "" where there is none.
///
/// With `Localhost` the parts that no scope specifies are those of this process's first CPU; with `LeftOut` they are
/// unspecified.
LOCKSTEP_API std::string current_device(MissingJob missing_job = MissingJob::Localhost);

/// Returns the canonical name of `device`, whose missing parts come from the device scopes of this thread.
LOCKSTEP_API std::string resolve(std::string_view device, MissingJob missing_job = MissingJob::Localhost);

}  // namespace lockstep
