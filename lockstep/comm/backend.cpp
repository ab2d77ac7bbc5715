#include "lockstep/comm/backend.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr Backend kBackends[] = {
    {.name = "local", .ranks = "threads of one process", .devices = "cpu, cuda", .available = true, .why_not = ""},
};

std::string known_names() {
  std::string names;
  for (const auto& backend : kBackends) names += (names.empty() ? "" : ", ") + std::string(backend.name);
  return names;
}

}  // namespace

std::span<const Backend> backends() { return kBackends; }

const Backend& find_backend(std::string_view name) {
  for (const auto& backend : kBackends) {
    if (backend.name == name) return backend;
  }
  LOCKSTEP_CHECK_VALUE(false, "[find_backend] the backend must be a known one: name=", name,
                       "; known are: ", known_names());
  return kBackends[0];
}

}  // namespace lockstep::comm
