#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/device/device_spec.h"

namespace lockstep {

/// Completes device strings of this thread for as long as it lives.
///
///     lockstep::DeviceScope scope("/cpu:1");
///     lockstep::resolve("");   // "/job:localhost/replica:0/task:0/device:CPU:1"
///
/// Scopes nest: an inner one overrides the parts it specifies, and `DeviceScope(std::nullopt)` hides all outer ones.
/// They end in the reverse order in which they began, each on the thread that began it.
class LOCKSTEP_API DeviceScope {
 public:
  /// Throws `c10::ValueError` when `device` does not parse.
  explicit DeviceScope(std::optional<std::string_view> device);
  ~DeviceScope();

  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
};

namespace detail {
/// Makes a replica's device current for as long as it lives, hiding all scopes around it. Costs two stores.
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

/// Returns what the device scopes of this thread say together, or "" where there is none.
///
/// With `kLocalhost` the parts that no scope specifies are those of this process's first CPU; with `kLeftOut` they are
/// unspecified.
LOCKSTEP_API std::string current_device(MissingJob missing_job = MissingJob::kLocalhost);

/// Returns the canonical name of `device`, whose missing parts come from the device scopes of this thread.
LOCKSTEP_API std::string resolve(std::string_view device, MissingJob missing_job = MissingJob::kLocalhost);

}  // namespace lockstep
