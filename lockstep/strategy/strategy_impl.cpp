#include "lockstep/strategy/strategy_impl.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/comm/shared/arena.h"
#include "lockstep/data/rewrites/batch_sizes.h"
#include "lockstep/device/captured_graph.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/random.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/aten_overrides/batch_norm.h"
#include "lockstep/strategy/aten_overrides/dispatch_mode.h"
#include "lockstep/strategy/aten_overrides/table_lookup.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/optimizer/parameter_writes.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/worker_trace.h"
#include "lockstep/strategy/workers.h"

namespace lockstep::detail {
namespace {

/// Tells the monitor that a run has ended, also where it throws.
class EndOfRun {
 public:
  explicit EndOfRun(comm::WatchedRuns* runs) : runs_(runs) {}
  ~EndOfRun() {
    if (runs_ != nullptr) runs_->end();
  }
  EndOfRun(const EndOfRun&) = delete;
  EndOfRun& operator=(const EndOfRun&) = delete;

 private:
  comm::WatchedRuns* runs_;
};

std::vector<c10::Device> torch_devices(const std::vector<LogicalDevice>& devices) {
  std::vector<c10::Device> result;
  for (const LogicalDevice& device : devices) result.push_back(device.torch_device);
  return result;
}

/// Runs of strategies with several local replicas, in this process.
std::atomic<int> runs_of_several{0};

/// Marks a strategy as running during its lifetime.
class RunningScope {
 public:
  RunningScope(std::atomic<bool>& flag, int num_local_replicas) : flag_(flag), several_(num_local_replicas > 1) {
    flag_.store(true, std::memory_order_relaxed);
    if (several_) runs_of_several.fetch_add(1, std::memory_order_relaxed);
  }
  ~RunningScope() {
    if (several_) runs_of_several.fetch_sub(1, std::memory_order_relaxed);
    flag_.store(false, std::memory_order_relaxed);
  }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  std::atomic<bool>& flag_;
  bool several_;
};

}  // namespace

void check_not_beside_replicas(const StrategyImpl* strategy, const char* what, const char* instead) {
  const bool beside = strategy != nullptr ? strategy->is_running() && strategy->num_local_replicas() > 1
                                          : runs_of_several.load(std::memory_order_relaxed) > 0;
  if (!beside || current_frame() != nullptr || ReplicaRandom::current() != nullptr) return;
  LOCKSTEP_THROW(
      ContextError, "[", what, "] was used inside a `run` of several replicas by a thread that is none of ",
      "them: a thread that a replica starts does not belong to it, and would get what belongs to replica 0; ", instead);
}

bool runs_backward_elsewhere(const StrategyImpl& strategy) {
  const c10::Device device = strategy.devices()[0].torch_device;
  if (device.is_cpu()) return false;
  return device.type() == c10::DeviceType::XLA || strategy.num_local_replicas() == 1;
}

StrategyImpl::Team::Team(const StrategyImpl& strategy, int depth, const Team* outer)
    : rendezvous(std::make_shared<comm::Rendezvous>(strategy.num_local_replicas())),
      groups(comm::make_local_groups(rendezvous)),
      threads(torch_devices(strategy.devices()), strategy.global_replica(0), strategy.num_workers(),
              strategy.workers() == nullptr ? 1 : strategy.workers()->sharing_cores()) {
  if (strategy.wrap_groups_) groups = strategy.wrap_groups_(std::move(groups), rendezvous);
  rendezvous->set_default_timeout(strategy.communication_options().timeout_or_default());
  if (Workers* workers = strategy.workers()) {
    spread = workers->make_groups(depth == 0 ? "replicas" : c10::str("replicas in merge ", depth),
                                  strategy.num_local_replicas());
    watched =
        std::make_unique<comm::WatchedRuns>(strategy.num_local_replicas(), outer ? outer->watched.get() : nullptr);
    const std::string& name = spread->local()[0].name();
    watches.push_back(workers->monitor().watch(
        {name, comm::GroupUse::Replicas, strategy.num_local_replicas(), &spread->recorder(), watched.get()}));
    watches.push_back(
        workers->monitor().watch({name + " of this worker", comm::GroupUse::LocalReplicas,
                                  strategy.num_local_replicas(), &rendezvous->recorder(), watched.get()}));
  } else if (auto dumped = comm::dump_local_replicas(strategy.num_local_replicas(), rendezvous->recorder())) {
    watches.push_back(std::move(dumped));
  }
}

StrategyImpl::StrategyImpl(std::vector<LogicalDevice> devices, std::shared_ptr<Workers> workers, WrapGroups wrap_groups,
                           const CommunicationOptions& options)
    : devices_(std::move(devices)),
      workers_(std::move(workers)),
      wrap_groups_(std::move(wrap_groups)),
      options_(options),
      parameter_writes_(std::make_unique<ParameterWrites>()) {
  apply_machine_defaults();
  start_trace_of_environment(workers_.get());
  TableLookups::prepare();
  BatchNormOverride::prepare();
  for (const LogicalDevice& device : devices_) {
    if (!device.torch_device.is_cpu()) Placement::prepare();
  }
  if (workers_) worker_groups_ = workers_->make_groups("workers", 1);
  if (workers_ && !workers_->shares_memory())
    gradient_groups_ = workers_->make_groups("gradients", num_local_replicas());
  if (!workers_)
    local_gradients_ = make_local_gradient_groups(torch_devices(devices_), wrap_groups_, options_.timeout_or_default());
  team_ = std::make_unique<Team>(*this, 0, nullptr);
  if (!workers_) return;
  const auto watch = [&](const comm::WorkerGroups& groups, comm::GroupUse use, const comm::WatchedRuns* runs) {
    watches_.push_back(workers_->monitor().watch(
        {groups.local()[0].name(), use, static_cast<int>(groups.local().size()), &groups.recorder(), runs}));
  };
  watch(*worker_groups_, comm::GroupUse::Workers, nullptr);
  if (gradient_groups_) watch(*gradient_groups_, comm::GroupUse::Gradients, team_->watched.get());
}

StrategyImpl::~StrategyImpl() = default;

std::vector<std::string> StrategyImpl::device_names() const {
  std::vector<std::string> names;
  for (const LogicalDevice& device : devices_) names.push_back(device.name);
  return names;
}

void StrategyImpl::check_replicas() {
  if (num_replicas_in_sync() > 1) observers_.check_replicas();
}

void StrategyImpl::check_replicas_after_replay() {
  observers_.count_replay();
  check_replicas();
}

// Teams are made by the thread that runs a merge function, while all other replicas of the run wait for it.
StrategyImpl::Team& StrategyImpl::team_at(int depth) const {
  Team* team = team_.get();
  int level = 0;
  while (level < depth) {
    ++level;
    if (!team->inside_merge) team->inside_merge = std::make_unique<Team>(*this, level, team);
    team = team->inside_merge.get();
  }
  return *team;
}

StrategyImpl::Team& StrategyImpl::current_team() const {
  const ContextFrame* frame = current_frame();
  return team_at(frame != nullptr && frame->strategy == this ? frame->depth : 0);
}

void StrategyImpl::call_for_each_replica(c10::function_ref<void(int)> body) {
  const ContextFrame* frame = current_frame();
  const int depth = frame != nullptr && frame->strategy == this ? frame->depth : 0;
  Team& team = team_at(depth);
  std::unique_lock<std::recursive_mutex> turn;
  if (depth == 0) turn = run_turn();
  const bool records = recorded_run_.graph != nullptr;
  try {
    run_team(team, depth, body);
  } catch (...) {
    if (!workers_) {
      if (depth == 0 && !records) comm::dump_failed_run(std::current_exception());
      throw;
    }
    // Also what was thrown before the replicas started: other workers wait for this one.
    workers_->report_failure(std::current_exception());
    workers_->dump();
    throw;
  }
}

void StrategyImpl::run_team(Team& team, int depth, c10::function_ref<void(int)> body) {
  // A run inside a merge function belongs to the run around it.
  if (depth > 0) return start_team(team, depth, body);
  const auto turn = run_turn();
  {
    const RunningScope running(is_running_, num_local_replicas());
    const comm::RunActivity counted;
    start_team(team, depth, body);
  }
  observers_.after_run();
  if (!is_traced()) check_replicas();
}

void StrategyImpl::start_team(Team& team, int depth, c10::function_ref<void(int)> body) {
  const RecordedRun recorded = depth == 0 ? std::exchange(recorded_run_, {}) : RecordedRun();
  if (recorded.graph != nullptr) return record_team(team, recorded, body);
  start_replicas(team, depth, body, [] {});
}

void StrategyImpl::record_team(Team& team, const RecordedRun& recorded, c10::function_ref<void(int)> body) {
  team.threads.use_generators(recorded.generators);
  is_recording_.store(true, std::memory_order_relaxed);
  const auto no_longer = c10::make_scope_exit([&] {
    is_recording_.store(false, std::memory_order_relaxed);
    team.threads.use_generators({});
  });
  try {
    start_replicas(team, 0, body, [&] { recorded.graph->begin(); });
  } catch (...) {
    recorded.graph->abandon();
    throw;
  }
  recorded.graph->end();
}

void StrategyImpl::start_replicas(Team& team, int depth, c10::function_ref<void(int)> body,
                                  c10::function_ref<void()> when_ready) {
  uint64_t run = 0;
  const EndOfRun end(team.watched.get());
  bool begins_gradients = false;
  RunObservers::List watching;
  team.threads.run(
      [&](int replica) {
        ReplicaDeviceScope device(devices_[replica].name);
        ContextGuard context({this, replica, depth, run});
        const Placement placed(placement() ? std::optional(devices_[replica].torch_device) : std::nullopt);
        const comm::SharedAllocation allocation(workers_ && workers_->shares_memory());
        const comm::OutsideChangesScope changes(observers_.outside_changes());
        const TableLookups lookups(devices_[replica].torch_device.is_cpu());
        const ReplicaMode batch_norms(BatchNormOverride::is_used());
        const ContextCarrier carrier(runs_backward_elsewhere(*this), &devices_[replica].name);
        for (const auto& observer : watching) observer->begin_replica(replica);
        comm::CallSite::forget_latest();
        body(replica);
        const comm::CallSiteScope after(comm::CallSite::latest());
        for (const auto& observer : watching) observer->end_replica(replica);
      },
      [&] {
        if (depth == 0) watching = observers_.before_run();
        if (num_replicas_in_sync() == 1 && parameter_device() == nullptr) watching.clear();
        team.rendezvous->reset();
        for (const Team* each = &team; each != nullptr; each = each->inside_merge.get()) {
          for (const comm::Group& group : each->groups) group.impl()->begin_run();
        }
        run = ++num_runs_;
        if (team.watched) team.watched->begin(run);
        if (team.watched && depth == 0) workers_->monitor().note_run();
        if (team.spread) team.spread->begin_run(run);
        begins_gradients = gradient_groups_ && (depth == 0 || gradients_left_);
        if (begins_gradients) {
          gradient_groups_->begin_run(run);
          gradients_left_ = false;
        }
        if (local_gradients_) local_gradients_->begin_run(depth);
        when_ready();
      },
      [&](int replica, std::exception_ptr error) {
        if (team.watched) team.watched->leave(replica);
        // This also ends the waits of the threads that send gradients.
        if (error && workers_) workers_->report_failure(error);
        if (team.spread) team.spread->leave(replica, error);
        if (begins_gradients && !error) {
          gradient_groups_->leave(replica, nullptr);
          gradients_left_ = true;
        }
        if (local_gradients_) local_gradients_->leave(replica, depth, error);
        team.rendezvous->leave(replica, error);
        team.groups[static_cast<size_t>(replica)].impl()->leave(error);
      });
  check_queued_work_of(team, "run");
}

void StrategyImpl::check_queued_work_of(const Team& team, const char* asks) const {
  team.groups[0].impl()->check_queued_work(asks);
  if (local_gradients_) local_gradients_->check_queued_work(asks);
  if (gradient_groups_) gradient_groups_->check_queued_work(asks);
  if (team.spread) team.spread->check_queued_work(asks);
}

void StrategyImpl::check_queued_work(const char* asks) {
  const auto turn = run_turn();
  for (const Team* team = team_.get(); team != nullptr; team = team->inside_merge.get()) {
    check_queued_work_of(*team, asks);
  }
}

data::detail::InputWorker StrategyImpl::input_worker() const { return {num_workers(), worker(), num_local_replicas()}; }

int StrategyImpl::worker() const { return workers_ ? workers_->index() : 0; }

int StrategyImpl::num_workers() const { return workers_ ? workers_->count() : 1; }

uint64_t StrategyImpl::bytes_sent() const {
  return (team_->spread ? team_->spread->bytes_sent() : 0) + (gradient_groups_ ? gradient_groups_->bytes_sent() : 0);
}

comm::SharedRendezvous* StrategyImpl::shared_rendezvous() const {
  const Team& team = current_team();
  return team.spread ? team.spread->shared_rendezvous() : nullptr;
}

StrategyImpl::LockedGroup StrategyImpl::worker_group() const {
  workers_->monitor().note_call();
  return {worker_group_mutex_, worker_groups_->local()[0]};
}

std::function<uint8_t(uint8_t)> StrategyImpl::any_worker() const {
  if (!workers_) return {};
  return [self = shared_from_this()](uint8_t mine) {
    const at::Tensor bits = at::empty({8}, at::kByte);
    for (int i = 0; i < 8; ++i) bits.data_ptr<uint8_t>()[i] = (mine >> i) & 1U;
    const at::Tensor of_all = self->worker_group()->all_reduce(bits, ReduceOp::Max).contiguous();
    uint8_t any = 0;
    for (int i = 0; i < 8; ++i) any |= static_cast<uint8_t>(of_all.data_ptr<uint8_t>()[i] << i);
    return any;
  };
}

std::vector<at::Tensor> StrategyImpl::of_all_replicas(std::vector<at::Tensor> local) const {
  if (!workers_) return local;
  check_same_shapes(comm::CallerOperation::current_or("reduce").name, local);
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : local) tensor = tensor.detach().to(local[0].device());
  return worker_group()->all_gather(at::stack(local), 0).unbind(0);
}

std::optional<uint64_t> StrategyImpl::seed_of_first_worker() const {
  if (!workers_) return std::nullopt;
  return of_first_worker(at::globalContext().defaultGenerator(at::kCPU).current_seed());
}

uint64_t StrategyImpl::of_first_worker(uint64_t own) const {
  if (!workers_) return own;
  return static_cast<uint64_t>(
      worker_group()->broadcast(at::scalar_tensor(static_cast<int64_t>(own), at::kLong), 0).item<int64_t>());
}

void StrategyImpl::take_from_first_worker(const std::vector<at::Tensor>& tensors) const {
  if (!workers_ || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> on_cpu;
  for (const at::Tensor& tensor : tensors) on_cpu.push_back(tensor.detach().to(at::kCPU));
  const auto values = worker_group()->broadcast(on_cpu, 0);
  for (size_t i = 0; i < tensors.size(); ++i) at::Tensor(tensors[i]).detach().copy_(values[i]);
}

}  // namespace lockstep::detail
