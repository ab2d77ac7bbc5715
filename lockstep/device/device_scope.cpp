#include "lockstep/device/device_scope.h"

#include <atomic>
#include <utility>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/device/carried_state.h"
#include "lockstep/device/logical_devices.h"

namespace lockstep {
namespace {

/// The combined spec of this thread's scopes up to each depth; no value where the innermost one hides the others.
thread_local std::vector<std::optional<DeviceSpec>> scopes;

/// The device of the replica that this thread runs, and how many scopes around the replica it hides.
thread_local const std::string* replica_device = nullptr;
thread_local size_t num_hidden = 0;

std::optional<DeviceSpec> innermost() {
  if (scopes.size() > num_hidden) return scopes.back();
  const std::string* device = replica_device;
  if (device == nullptr) {
    const detail::CarriedState* const carried = detail::carried_state();
    device = carried == nullptr ? nullptr : carried->device;
  }
  return device != nullptr ? std::optional(DeviceSpec::parse(*device)) : std::nullopt;
}

std::atomic<bool>& placement_switch() {
  static std::atomic<bool> is_on{env::flag("LOCKSTEP_PLACEMENT")};
  return is_on;
}

/// A spec without a type of device changes no placement.
void place(const std::optional<DeviceSpec>& spec, std::optional<detail::Placement>& placement) {
  if (!spec) {
    placement.emplace(std::nullopt);
    return;
  }
  if (!spec->type()) return;
  const std::string text = (spec->index() ? *spec : spec->with_index(0)).to_string();
  const bool is_known = *spec->type() == "CPU" || *spec->type() == "GPU" || *spec->type() == "TPU";
  const std::string name = is_known ? canonicalize(text) : text;
  if (is_known && has_logical_device(name)) {
    placement.emplace(find_logical_device(name).torch_device);
  } else {
    placement.emplace(name);
  }
}

}  // namespace

void set_placement(bool on) { placement_switch().store(on, std::memory_order_relaxed); }

bool placement() { return placement_switch().load(std::memory_order_relaxed); }

DeviceScope::DeviceScope(std::optional<std::string_view> device) {
  std::optional<DeviceSpec> merged;
  if (device) merged = innermost().value_or(DeviceSpec()).merged_with(DeviceSpec::parse(*device));
  if (placement()) place(merged, placement_);
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
  return missing_job == MissingJob::Localhost ? canonicalize(spec->to_string()) : spec->to_string();
}

std::string resolve(std::string_view device, MissingJob missing_job) {
  return canonicalize(device, innermost().value_or(DeviceSpec()).to_string(), missing_job);
}

}  // namespace lockstep
