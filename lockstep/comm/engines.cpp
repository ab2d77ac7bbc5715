#include "lockstep/comm/engines.h"

#include <array>
#include <mutex>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/transport/engine_module.h"

namespace lockstep::comm {
namespace {

struct EngineRow {
  std::string_view name;
  std::string_view ranks;
  std::string_view devices;
  /// Whether it is part of the library, and so always usable.
  bool built_in = false;
  std::once_flag tried{};
  EngineState state{};
};

std::array<EngineRow, 5>& engine_rows() {
  static std::array<EngineRow, 5> table{{
      {"local", "threads of one process", "cpu, cuda", true},
      {"shm", "processes of one machine", "cpu", true},
      {"gloo", "processes", "cpu"},
      {"mpi", "processes", "cpu"},
      {"nccl", "processes", "cuda"},
  }};
  return table;
}

Engine tried(EngineRow& row) {
  std::call_once(row.tried, [&] {
    if (!row.built_in) row.state = try_engine(row.name);
  });
  return {.name = row.name,
          .ranks = row.ranks,
          .devices = row.devices,
          .available = row.state.why_not.empty(),
          .why_not = row.state.why_not,
          .remark = row.state.remark};
}

std::string known_names() {
  std::string names;
  for (const auto& row : engine_rows()) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace

std::span<const Engine> engines() {
  static const auto table = [] {
    std::array<Engine, std::tuple_size_v<std::remove_reference_t<decltype(engine_rows())>>> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = tried(engine_rows()[i]);
    return all;
  }();
  return table;
}

Engine find_engine(std::string_view name) {
  for (auto& row : engine_rows()) {
    if (row.name == name) return tried(row);
  }
  LOCKSTEP_CHECK_VALUE(false, "[find_engine] the engine must be a known one: name=", name,
                       "; known are: ", known_names());
  return {};
}

}  // namespace lockstep::comm
