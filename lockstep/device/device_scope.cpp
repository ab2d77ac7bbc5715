#include "lockstep/device/device_scope.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// What all scopes of this thread up to each depth say together; no value where the innermost one hides the others.
thread_local std::vector<std::optional<DeviceSpec>> scopes;

std::optional<DeviceSpec> innermost() { return scopes.empty() ? std::nullopt : scopes.back(); }

}  // namespace

DeviceScope::DeviceScope(std::optional<std::string_view> device) {
  std::optional<DeviceSpec> merged;
  if (device) merged = innermost().value_or(DeviceSpec()).merged_with(DeviceSpec::parse(*device));
  scopes.push_back(std::move(merged));
}

DeviceScope::~DeviceScope() { scopes.pop_back(); }

std::string current_device(MissingJob missing_job) {
  const std::optional<DeviceSpec> spec = innermost();
  if (!spec) return "";
  return missing_job == MissingJob::kLocalhost ? canonicalize(spec->to_string()) : spec->to_string();
}

std::string resolve(std::string_view device, MissingJob missing_job) {
  return canonicalize(device, innermost().value_or(DeviceSpec()).to_string(), missing_job);
}

}  // namespace lockstep
