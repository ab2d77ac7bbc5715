#include "lockstep/device/device_scope.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// What all scopes of this thread up to each depth say together; no value where the innermost one hides the others.
thread_local std::vector<std::optional<DeviceSpec>> scopes;

/// The device of the replica that this thread runs, and how many scopes around the replica it hides.
thread_local const std::string* replica_device = nullptr;
thread_local size_t num_hidden = 0;

std::optional<DeviceSpec> innermost() {
  if (scopes.size() > num_hidden) return scopes.back();
  return replica_device != nullptr ? std::optional(DeviceSpec::parse(*replica_device)) : std::nullopt;
}

}  // namespace

DeviceScope::DeviceScope(std::optional<std::string_view> device) {
  std::optional<DeviceSpec> merged;
  if (device) merged = innermost().value_or(DeviceSpec()).merged_with(DeviceSpec::parse(*device));
  scopes.push_back(std::move(merged));
}

DeviceScope::~DeviceScope() { scopes.pop_back(); }

detail::ReplicaDeviceScope::ReplicaDeviceScope(const std::string& canonical_name)
    : device_before_(std::exchange(replica_device, &canonical_name)),
      hidden_before_(std::exchange(num_hidden, scopes.size())) {}

detail::ReplicaDeviceScope::~ReplicaDeviceScope() {
  replica_device = device_before_;
  num_hidden = hidden_before_;
}

std::string current_device(MissingJob missing_job) {
  const std::optional<DeviceSpec> spec = innermost();
  if (!spec) return "";
  return missing_job == MissingJob::kLocalhost ? canonicalize(spec->to_string()) : spec->to_string();
}

std::string resolve(std::string_view device, MissingJob missing_job) {
  return canonicalize(device, innermost().value_or(DeviceSpec()).to_string(), missing_job);
}

}  // namespace lockstep
