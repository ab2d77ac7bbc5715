#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/diagnostics/wait_monitor.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/worker_groups.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/device/replica_threads.h"
#include "lockstep/strategy/local_gradient_groups.h"
#include "lockstep/strategy/replay/step_replay.h"
#include "lockstep/strategy/run_observers.h"

namespace lockstep {

class ClusterResolver;
class CrossDeviceOps;
struct RuntimeConfig;

namespace comm {
class SharedRendezvous;
}

namespace data::detail {
struct InputWorker;
}

namespace detail {

class CapturedGraph;
class ParameterWrites;
class Workers;

/// Internal: the state of a strategy, and the part in which strategies differ. `Strategy` checks arguments and
/// contexts.
class LOCKSTEP_API StrategyImpl : public std::enable_shared_from_this<StrategyImpl> {
 public:
  virtual ~StrategyImpl();

  /// The public class, for example "MirroredStrategy".
  virtual const char* type_name() const = 0;

  /// Whether replicas have values of their own: PerReplica results, mirrored variables. False for strategies that have
  /// one device by definition.
  virtual bool distributes_values() const = 0;

  virtual bool is_default() const { return false; }

  virtual const CrossDeviceOps& cross_device_ops() const = 0;
  /// Whether sums over replicas inside `run`, those of gradients included, go through `cross_device_ops`.
  virtual bool reduces_with_cross_device_ops() const { return false; }
  /// What collectives do for which a call gives no options.
  const CommunicationOptions& communication_options() const { return options_; }

  virtual void update_config(RuntimeConfig& config) const = 0;

  /// The description of the cluster; null for strategies of one process.
  virtual std::shared_ptr<ClusterResolver> cluster_resolver() const { return nullptr; }
  /// Whether this process writes checkpoints and summaries.
  virtual bool is_chief() const { return true; }
  /// Whether each worker builds its own computation.
  virtual bool between_graph() const { return false; }

  /// The device of variables that are stored once for all replicas; null if each replica has its own.
  virtual const LogicalDevice* parameter_device() const { return nullptr; }
  virtual std::vector<std::string> parameter_device_names() const { return device_names(); }

  /// Whether `gather` needs tensors of equal shapes.
  virtual bool requires_equal_shapes() const { return false; }
  /// Called in each replica before a merge function reads what the replica computed.
  virtual void before_merge(int /*replica*/) {}
  /// Whether replicas only record what to compute. The strategy calls `check_replicas` itself when it is computed.
  virtual bool is_traced() const { return false; }
  /// Returns what replays pure steps; null if they run like all others.
  virtual std::unique_ptr<StepReplay> make_replay() { return nullptr; }

  /// The index of this process among those that read a dataset together.
  data::detail::InputWorker input_worker() const;
  /// Returns a function that gives the bits that any worker has set, by which workers agree on the end of data; empty
  /// if there is one worker.
  std::function<uint8_t(uint8_t)> any_worker() const;
  /// Whether each replica may have an input pipeline of its own.
  virtual bool supports_input_per_replica() const { return false; }

  /// Devices of the local replicas, in replica order.
  const std::vector<LogicalDevice>& devices() const { return devices_; }
  std::vector<std::string> device_names() const;
  int num_local_replicas() const { return static_cast<int>(devices_.size()); }
  int num_replicas_in_sync() const { return num_local_replicas() * num_workers(); }
  /// The index of a local replica among all replicas.
  int global_replica(int local) const { return worker() * num_local_replicas() + local; }

  /// The processes of the strategy; null if there is only this one.
  Workers* workers() const { return workers_.get(); }
  int worker() const;
  int num_workers() const;
  /// Takes one tensor of each local replica and returns those of all replicas. All workers call it, outside of
  /// replicas.
  std::vector<at::Tensor> of_all_replicas(std::vector<at::Tensor> local) const;
  /// Overwrites tensors with the first worker's values. All workers call it, on one thread.
  void take_from_first_worker(const std::vector<at::Tensor>& tensors) const;
  /// The seed of the first worker's default generator; nothing if there is one worker. All workers call it.
  std::optional<uint64_t> seed_of_first_worker() const;
  /// The number that the first worker gave; `own` if there is one worker. All workers call it.
  uint64_t of_first_worker(uint64_t own) const;
  /// The group of all workers, for collectives outside of replicas, while no other thread uses it.
  class LockedGroup {
   public:
    LockedGroup(std::mutex& mutex, const comm::Group& group) : lock_(mutex), group_(group) {}
    const comm::Group* operator->() const { return &group_; }
    const comm::Group& operator*() const { return group_; }

   private:
    std::unique_lock<std::mutex> lock_;
    const comm::Group& group_;
  };
  /// Waits until no other thread uses the group. It has one rank of each worker. Only with several workers.
  LockedGroup worker_group() const;
  /// The group of all replicas that reduces gradients while replicas compute. Only with several workers that do not
  /// share memory, and where `has_local_gradient_groups` says so.
  const comm::Group& gradient_group(int replica) const {
    return local_gradients_ ? local_gradients_->group(replica) : gradient_groups_->local()[replica];
  }
  /// Whether this process has all replicas, which are several and on GPUs.
  bool has_local_gradient_groups() const { return local_gradients_ != nullptr; }
  /// For as long as it lives, a replica waits for the thread that sends its gradients. Only with several workers.
  comm::WatchedRuns::GradientWait wait_for_gradients(int replica) const {
    return {current_team().watched.get(), replica};
  }
  /// How many bytes this worker's replicas have sent to other workers inside of runs, by messages.
  uint64_t bytes_sent() const;
  /// The last collectives of that group.
  const comm::Recorder& gradient_recorder() const { return gradient_groups_->recorder(); }

  /// Calls `body(replica)` on every local replica, in its replica context, and waits.
  virtual void call_for_each_replica(c10::function_ref<void(int)> body);

  /// The rendezvous of the local replicas, and the group of all replicas of all workers, for the run that the calling
  /// thread takes part in. Replica r calls `group(r)`.
  comm::Rendezvous& rendezvous() const { return *current_team().rendezvous; }
  const comm::Group& group(int replica) const { return current_team().group(replica); }
  /// The rendezvous of the replicas of all workers in shared memory; null if they share none.
  comm::SharedRendezvous* shared_rendezvous() const;

  /// How the next run is recorded into a graph. Each replica draws random numbers from its generator, if there are any.
  struct RecordedRun {
    CapturedGraph* graph = nullptr;
    std::vector<at::Generator> generators;
  };
  /// Records the next run, whose work is not computed; or none, without a graph.
  void record_next_run(RecordedRun recorded) { recorded_run_ = std::move(recorded); }
  /// Whether replicas are inside a run that is recorded: values must not be read on the host.
  bool is_recording() const { return is_recording_.load(std::memory_order_relaxed); }
  /// The calling thread's turn to run, to record or to replay. A run takes it by itself.
  std::unique_lock<std::recursive_mutex> run_turn() { return std::unique_lock<std::recursive_mutex>(run_mutex_); }

  /// Throws where work that replicas have queued on GPUs has failed since; `asks`, such as "checkpoint", stands in
  /// the error. Where it does not, values that were read from GPUs before are what the runs have computed.
  void check_queued_work(const char* asks);

  /// Those that are called around each run.
  RunObservers& observers() { return observers_; }
  /// Lets all observers compare what replicas hold, where there are several.
  void check_replicas();
  /// The same after a replayed step, which is counted first.
  void check_replicas_after_replay();

  /// Whether replicas are inside a run.
  bool is_running() const { return is_running_.load(std::memory_order_relaxed); }
  /// The number of runs so far. Equal on all workers.
  uint64_t num_runs() const { return num_runs_.load(); }
  /// What optimizers of this strategy write.
  ParameterWrites& parameter_writes() const { return *parameter_writes_; }

  /// Count the optimizers, variables and modules that are made, in the same order on all workers. See CollectiveOwner.
  uint64_t next_optimizer() { return num_optimizers_++; }
  uint64_t next_variable() { return num_variables_++; }
  uint64_t next_module() { return num_modules_++; }

  int threads_per_replica() const { return team_->threads.threads_per_replica(); }

 protected:
  using WrapGroups = detail::WrapGroups;

  explicit StrategyImpl(std::vector<LogicalDevice> devices, std::shared_ptr<Workers> workers = nullptr,
                        WrapGroups wrap_groups = nullptr, const CommunicationOptions& options = {});

 private:
  /// The threads of the local replicas, with their rendezvous and groups. They wait while a merge function is called,
  /// so a run inside it needs another team.
  struct Team {
    Team(const StrategyImpl& strategy, int depth, const Team* outer);
    const comm::Group& group(int replica) const { return spread ? spread->local()[replica] : groups[replica]; }

    std::shared_ptr<comm::Rendezvous> rendezvous;
    std::vector<comm::Group> groups;
    /// The groups of the replicas of all workers; null if there is one worker.
    std::shared_ptr<comm::WorkerGroups> spread;
    ReplicaThreads threads;
    std::unique_ptr<Team> inside_merge;
    /// What the monitor of the workers sees; null if there is one worker.
    std::unique_ptr<comm::WatchedRuns> watched;
    std::vector<std::shared_ptr<void>> watches;
  };

  Team& team_at(int depth) const;
  Team& current_team() const;
  void run_team(Team& team, int depth, c10::function_ref<void(int)> body);
  void start_team(Team& team, int depth, c10::function_ref<void(int)> body);
  void record_team(Team& team, const RecordedRun& recorded, c10::function_ref<void(int)> body);
  void check_queued_work_of(const Team& team, const char* asks) const;
  /// `when_ready` is called on the calling thread, before the replicas start.
  void start_replicas(Team& team, int depth, c10::function_ref<void(int)> body, c10::function_ref<void()> when_ready);

  std::vector<LogicalDevice> devices_;
  std::shared_ptr<Workers> workers_;
  WrapGroups wrap_groups_;
  CommunicationOptions options_;
  std::shared_ptr<comm::WorkerGroups> worker_groups_;
  mutable std::mutex worker_group_mutex_;
  std::shared_ptr<comm::WorkerGroups> gradient_groups_;
  std::unique_ptr<LocalGradientGroups> local_gradients_;
  std::unique_ptr<Team> team_;
  std::vector<std::shared_ptr<void>> watches_;
  std::atomic<uint64_t> num_optimizers_{0};
  std::atomic<uint64_t> num_variables_{0};
  std::atomic<uint64_t> num_modules_{0};
  /// Held by a run until its observers have been called.
  std::recursive_mutex run_mutex_;
  std::atomic<uint64_t> num_runs_{0};
  std::atomic<bool> is_running_{false};
  RecordedRun recorded_run_;
  std::atomic<bool> is_recording_{false};
  std::unique_ptr<ParameterWrites> parameter_writes_;
  /// Whether replicas have ended the last run of `gradient_groups_`.
  std::atomic<bool> gradients_left_{false};
  RunObservers observers_;
};

/// Throws a ContextError where the calling thread belongs to no replica while replicas are inside a run, of `strategy`
/// or, if it is null, of any: it would get what belongs to the first replica. Threads of input pipelines are let
/// through.
LOCKSTEP_API void check_not_beside_replicas(const StrategyImpl* strategy, const char* what, const char* instead);

/// The strategy that is current if none is entered. Lives as long as the process.
LOCKSTEP_API StrategyImpl& default_strategy();

}  // namespace detail
}  // namespace lockstep
