#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/worker_groups.h"
#include "lockstep/data/input_worker.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/device/replica_threads.h"
#include "lockstep/strategy/before_run.h"
#include "lockstep/strategy/step_replay.h"

namespace lockstep {

class ClusterResolver;
class CrossDeviceOps;
struct RuntimeConfig;

namespace comm {
class SharedRendezvous;
}

namespace detail {

class Workers;

/// Inside: what makes strategies differ. `Strategy` checks arguments and contexts, then asks one of these.
class LOCKSTEP_API StrategyImpl : public std::enable_shared_from_this<StrategyImpl> {
 public:
  virtual ~StrategyImpl();

  /// The public class, for example "MirroredStrategy".
  virtual const char* type_name() const = 0;

  /// Whether values of replicas are kept apart: PerReplica results, mirrored variables. False for strategies that have
  /// one device by definition.
  virtual bool distributes_values() const = 0;

  virtual bool is_default() const { return false; }

  virtual const CrossDeviceOps& cross_device_ops() const = 0;

  virtual void update_config(RuntimeConfig& config) const = 0;

  /// The description of the cluster; null for strategies of one process.
  virtual std::shared_ptr<ClusterResolver> cluster_resolver() const { return nullptr; }
  /// Whether this process writes checkpoints and summaries.
  virtual bool is_chief() const { return true; }
  /// Whether each worker builds its own computation.
  virtual bool between_graph() const { return false; }

  /// Where variables are, for strategies that keep them once for all replicas; null where each replica has its own.
  virtual const LogicalDevice* parameter_device() const { return nullptr; }
  virtual std::vector<std::string> parameter_device_names() const { return device_names(); }

  /// Whether what replicas gather must have one shape.
  virtual bool requires_equal_shapes() const { return false; }
  /// Called in each replica before a merge function sees what it computed.
  virtual void before_merge(int /*replica*/) {}
  /// How steps that are declared pure are replayed; null where they are run like all others.
  virtual std::unique_ptr<StepReplay> make_replay() { return nullptr; }

  /// Where this process stands among those that read a dataset together.
  data::detail::InputWorker input_worker() const { return {num_workers(), worker(), num_local_replicas()}; }
  /// How workers agree on the end of data; empty where there is one.
  std::function<bool(bool)> any_worker() const;
  /// Whether each replica may have an input pipeline of its own.
  virtual bool supports_input_per_replica() const { return false; }

  /// Devices of the local replicas, in replica order.
  const std::vector<LogicalDevice>& devices() const { return devices_; }
  std::vector<std::string> device_names() const;
  int num_local_replicas() const { return static_cast<int>(devices_.size()); }
  int num_replicas_in_sync() const { return num_local_replicas() * num_workers(); }
  /// Number among all replicas of a local one.
  int global_replica(int local) const { return worker() * num_local_replicas() + local; }

  /// The other processes of the strategy; null where there are none.
  Workers* workers() const { return workers_.get(); }
  int worker() const;
  int num_workers() const;
  /// Makes tensors, one of each local replica, those of all replicas. All workers call it, outside of replicas.
  std::vector<at::Tensor> of_all_replicas(std::vector<at::Tensor> local) const;
  /// Gives tensors the values that they have on the first worker. All workers call it, on one thread.
  void take_from_first_worker(const std::vector<at::Tensor>& tensors) const;
  /// The seed of the first worker's default generator; nothing where there is one worker. All workers call it.
  std::optional<uint64_t> seed_of_first_worker() const;
  /// The group of all workers, one rank each, for what happens outside of replicas; only where there are others.
  const comm::Group& worker_group() const { return across_->local()[0]; }
  /// The group of all replicas on which gradients travel while a replica computes; only where there are other workers.
  const comm::Group& gradient_group(int replica) const { return gradients_->local()[replica]; }

  /// Calls `body(replica)` on every local replica, in its replica context, and waits.
  virtual void call_for_each_replica(c10::function_ref<void(int)> body);

  /// Where the replicas of the run meet that the calling thread takes part in; `group(r)` is what replica r calls.
  /// Replicas meet locally, groups are of all replicas of all workers.
  comm::Rendezvous& rendezvous() const { return *current_team().rendezvous; }
  const comm::Group& group(int replica) const { return current_team().group(replica); }
  /// Where replicas of all workers meet in shared memory; null where they do not.
  comm::SharedRendezvous* shared_rendezvous() const;

  /// Calls `observer.before_run()` before every run, for as long as somebody else keeps it alive.
  void add_before_run(std::weak_ptr<BeforeRun> observer);
  /// Calls all of them now, as a run does that is made without its function; returns their fingerprint.
  size_t observe_run();

  int threads_per_replica() const { return team_->threads.threads_per_replica(); }

 protected:
  /// Makes the group that a replica calls of the one whose ranks are threads of this process.
  using WrapGroup = std::function<comm::Group(const comm::Group&)>;

  explicit StrategyImpl(std::vector<LogicalDevice> devices, std::shared_ptr<Workers> workers = nullptr,
                        WrapGroup wrap_group = nullptr);

 private:
  /// The threads of the local replicas and where they meet. Those of a run wait while a merge function is called, so a
  /// run inside of it needs another team.
  struct Team {
    Team(const StrategyImpl& strategy, int depth);
    const comm::Group& group(int replica) const { return spread ? spread->local()[replica] : groups[replica]; }

    std::shared_ptr<comm::Rendezvous> rendezvous;
    std::vector<comm::Group> groups;
    /// The replicas of all workers, where there are others.
    std::shared_ptr<comm::WorkerGroups> spread;
    ReplicaThreads threads;
    std::unique_ptr<Team> inside_merge;
  };

  Team& team_at(int depth) const;
  Team& current_team() const;
  void notify_observers();

  void run_team(Team& team, int depth, c10::function_ref<void(int)> body);

  std::vector<LogicalDevice> devices_;
  std::shared_ptr<Workers> workers_;
  WrapGroup wrap_group_;
  std::shared_ptr<comm::WorkerGroups> across_;
  std::shared_ptr<comm::WorkerGroups> gradients_;
  std::unique_ptr<Team> team_;
  std::atomic<uint64_t> num_runs_{0};
  std::mutex observers_mutex_;
  std::vector<std::weak_ptr<BeforeRun>> observers_;
};

/// The strategy that is current where none is entered. Lives as long as the process.
LOCKSTEP_API StrategyImpl& default_strategy();

}  // namespace detail
}  // namespace lockstep
