#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/transport.h"

/// Engines live in shared objects of their own, beside the library, and are opened when first asked for: a program
/// needs only the vendors' libraries that it uses, and their symbols never mix with LibTorch's copies of them.
namespace lockstep::comm {

/// What a transport is made with, besides the job.
struct TransportOptions {
  /// Unique in the job: what the transport leaves there begins with it.
  std::string name;
  int num_lanes = 1;
  /// The GPU of each lane; empty for engines whose messages lie in the host's memory.
  std::vector<int> devices{};
  /// How long to wait for the others while connecting.
  std::chrono::milliseconds timeout{0};
};

/// An engine, as its shared object offers it through the one function that it exports, `lockstep_engine`.
struct Engine {
  std::shared_ptr<Transport> (*make_transport)(Job& job, const TransportOptions& options);
  /// Why it cannot be used in this process; empty where it can.
  std::string (*why_not)();
  /// Its version and what is special about it, for people.
  std::string (*remark)();
  /// The engine's own all-reduce, a sum in place, for measuring against; null where there is none. `transport` is one
  /// of this engine's, and nothing else uses it meanwhile.
  void (*all_reduce)(Transport& transport, float* data, size_t count) = nullptr;
};

using EngineEntry = const Engine* (*)();

/// Returns the engine of that name. Throws CollectiveError with the loader's words where it cannot be opened.
LOCKSTEP_API const Engine& load_engine(std::string_view name);

/// What the table of backends says of an engine.
struct EngineState {
  std::string why_not;
  std::string remark;
};

/// Returns the state of an engine that was built, opening it.
LOCKSTEP_API EngineState state_of_engine(std::string_view name);

}  // namespace lockstep::comm
