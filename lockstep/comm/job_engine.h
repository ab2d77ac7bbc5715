#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/worker_groups.h"

namespace lockstep::comm {

class SharedMemory;

/// What the workers of a job need from the engine that carries their collectives.
struct EngineRequest {
  /// Unique in the job: the keys that the choice and the groups set there begin with it.
  std::string name;
  /// What error messages begin with, the name of what the user calls.
  std::string operation;
  CommunicationImplementation implementation = CommunicationImplementation::Auto;
  /// The GPU of each local rank; empty where ranks are on CPUs.
  std::vector<int> gpus{};
  /// Whether gradients and all else must be added in the fixed tree: then NCCL only carries messages.
  bool deterministic = false;
  /// How long to wait for other workers, now and in the collectives of the groups.
  std::chrono::milliseconds timeout{};
};

/// The engine that all workers of a job have agreed on, and the groups that are made with it. Only this unit chooses
/// between engines.
class LOCKSTEP_API JobEngine {
 public:
  /// All workers call it with the same request. They take the first engine that every one of them can use, or the one
  /// that LOCKSTEP_ENGINE names. c10::ValueError lists what was tried, and why each engine cannot be used.
  JobEngine(std::shared_ptr<Job> job, EngineRequest request);
  ~JobEngine();

  /// The engine's name, and why it was chosen: "shm", "all 2 workers are on one machine and share memory".
  const std::string& name() const { return name_; }
  const std::string& reason() const { return reason_; }
  bool shares_memory() const { return memory_ != nullptr; }

  /// Makes a group over all workers, with so many ranks of each. All workers do so, in the same order. The last
  /// collectives of the local ranks are part of this process's dumps, as group `purpose`.
  std::shared_ptr<WorkerGroups> make_groups(const std::string& purpose, int ranks_per_worker);

 private:
  void choose();
  bool can_use_nccl(bool is_asked_for);
  bool connect_memory();
  bool choose_for_messages(bool with_nccl);
  bool all_workers_have(std::string_view engine);
  /// Names two ranks on one card; empty where each has its own.
  std::string ranks_on_one_card();
  void wait_for_readers(const char* what);
  void add_refusal(const std::string& text);

  std::shared_ptr<Job> job_;
  EngineRequest request_;
  /// What LOCKSTEP_ENGINE says.
  std::string asked_;
  std::string name_;
  /// The engine for the memory of hosts, where messages are sent.
  std::string host_engine_;
  std::string reason_;
  /// Why engines that were tried cannot be used.
  std::string refusals_;
  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace lockstep::comm
