#include "lockstep/comm/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"AUTO", "RING", "NCCL"};
constexpr auto kLongest = std::chrono::hours(24 * 365);

CommunicationImplementation::Kind parse(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto* const found = std::find(kNames.begin(), kNames.end(), upper);
  LOCKSTEP_CHECK_VALUE(found != kNames.end(),
                       "[CommunicationImplementation] the name must be AUTO, RING or NCCL: name=", name);
  return static_cast<CommunicationImplementation::Kind>(found - kNames.begin());
}

}  // namespace

CommunicationImplementation::CommunicationImplementation(std::string_view name) : kind_(parse(name)) {}

std::string_view CommunicationImplementation::name() const { return kNames.at(static_cast<size_t>(kind_)); }

std::ostream& operator<<(std::ostream& out, CommunicationImplementation implementation) {
  return out << implementation.name();
}

void CommunicationOptions::validate() const {
  LOCKSTEP_CHECK_VALUE(bytes_per_pack >= 0,
                       "[CommunicationOptions] bytes_per_pack must be >= 0: bytes_per_pack=", bytes_per_pack);
}

CommunicationOptions CommunicationOptions::merge(const CommunicationOptions& other) const {
  validate();
  other.validate();
  CommunicationOptions merged = *this;
  if (other.bytes_per_pack != 0) merged.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout_seconds) merged.timeout_seconds = other.timeout_seconds;
  if (other.deterministic) merged.deterministic = true;
  if (other.implementation != CommunicationImplementation::Auto) merged.implementation = other.implementation;
  return merged;
}

std::chrono::milliseconds CommunicationOptions::timeout() const {
  if (!timeout_seconds) return {};
  const std::chrono::duration<double> limit(*timeout_seconds);
  if (limit.count() <= 0 || limit >= kLongest) return kLongest;
  return std::max(std::chrono::milliseconds(1), std::chrono::duration_cast<std::chrono::milliseconds>(limit));
}

std::chrono::milliseconds CommunicationOptions::timeout_or_default() const {
  return timeout_seconds ? timeout() : env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT");
}

}  // namespace lockstep
