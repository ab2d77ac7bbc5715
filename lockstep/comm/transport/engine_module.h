#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/transport/transport.h"

/// Engines with a vendor's library (gloo, mpi, nccl) are shared objects beside lockstep's library, opened at first use:
/// a program loads only the vendors' libraries that it uses, and their symbols never mix with LibTorch's copies of
/// them.
namespace lockstep::comm {

class DeviceCollectives;
struct DeviceCollectivesOptions;

/// What a transport is made with, besides the job.
struct TransportOptions {
  /// Unique in the job: the keys that the transport sets there begin with it.
  std::string name;
  int num_lanes = 1;
  /// The GPU of each lane; empty for engines whose messages lie in the memory of the host.
  std::vector<int> devices{};
  /// How long to wait for the other workers while connecting.
  std::chrono::milliseconds timeout{0};
};

/// What the shared object of an engine provides, through the one function that it exports, `lockstep_engine`.
struct EngineModule {
  std::shared_ptr<Transport> (*make_transport)(Job& job, const TransportOptions& options);
  /// Returns why the engine cannot be used in this process; empty where it can.
  std::string (*why_not)();
  /// Returns its version and special properties, for people.
  std::string (*remark)();
  /// The engine's own all-reduce, a sum in place, as a baseline for measurements; null where there is none. `transport`
  /// is one of this engine's, and nothing else uses it at the same time.
  void (*all_reduce)(Transport& transport, float* data, size_t count) = nullptr;
  /// Collectives between GPUs, and what follows: all null where the engine has none. Where the options have a job, all
  /// its workers are connected when it returns.
  std::shared_ptr<DeviceCollectives> (*make_device_collectives)(const DeviceCollectivesOptions& options) = nullptr;
  /// Names a GPU: two GPUs of any processes with equal names are one card. Makes no context on it.
  std::string (*card_of)(int device) = nullptr;
  /// Whether a card may have several ranks of a group.
  bool (*takes_ranks_of_one_card)() = nullptr;
};
using EngineEntry = const EngineModule* (*)();

/// Returns the module of an engine, opened at the first call. CollectiveError holds the loader's message where it
/// cannot be opened.
LOCKSTEP_API const EngineModule& load_engine(std::string_view name);

/// What is known of an engine after trying it.
struct EngineState {
  /// Why it cannot be used in this process; empty where it can.
  std::string why_not{};
  std::string remark{};
};

/// Opens the module of an engine and asks it, however this process was started. `why_not` holds the loader's message
/// where it cannot be opened.
LOCKSTEP_API EngineState state_of_engine(std::string_view name);

/// Tries an engine: opens its module where it was built and this process was started as it needs. For nccl this
/// initializes CUDA, so processes that fork later must not call it.
LOCKSTEP_API EngineState try_engine(std::string_view name);

/// Connects all workers of the job through an engine. c10::NotImplementedError where it was not built, CollectiveError
/// where this process cannot use it.
LOCKSTEP_API std::shared_ptr<Transport> make_transport(std::string_view engine, Job& job,
                                                       const TransportOptions& options);

}  // namespace lockstep::comm
