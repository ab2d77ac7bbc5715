#include "lockstep/comm/backend.h"

#include <array>
#include <mutex>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/gloo/gloo.h"
#include "lockstep/comm/backends/mpi/mpi.h"
#include "lockstep/comm/backends/nccl/nccl.h"
#include "lockstep/comm/engine_module.h"

namespace lockstep::comm {
namespace {

/// An engine, and what trying it has given.
struct Row {
  std::string_view name;
  std::string_view ranks;
  std::string_view devices;
  EngineState (*state)();
  std::once_flag tried{};
  EngineState found{};
};

EngineState always() { return {}; }

std::array<Row, 5>& rows() {
  static std::array<Row, 5> table{{
      {"local", "threads of one process", "cpu, cuda", &always},
      {"shm", "processes of one machine", "cpu", &always},
      {"gloo", "processes", "cpu", &gloo_state},
      {"mpi", "processes", "cpu", &mpi_state},
      {"nccl", "processes", "cuda", &nccl_state},
  }};
  return table;
}

Backend tried(Row& row) {
  std::call_once(row.tried, [&] { row.found = row.state(); });
  return {.name = row.name,
          .ranks = row.ranks,
          .devices = row.devices,
          .available = row.found.why_not.empty(),
          .why_not = row.found.why_not,
          .remark = row.found.remark};
}

std::string known_names() {
  std::string names;
  for (const auto& row : rows()) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace

std::span<const Backend> backends() {
  static const auto table = [] {
    std::array<Backend, std::tuple_size_v<std::remove_reference_t<decltype(rows())>>> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = tried(rows()[i]);
    return all;
  }();
  return table;
}

Backend find_backend(std::string_view name) {
  for (auto& row : rows()) {
    if (row.name == name) return tried(row);
  }
  LOCKSTEP_CHECK_VALUE(false, "[find_backend] the backend must be a known one: name=", name,
                       "; known are: ", known_names());
  return {};
}

}  // namespace lockstep::comm
