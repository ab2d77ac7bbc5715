#include "lockstep/strategy/strategy_impl.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/env.h"
#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/shared/arena.h"
#include "lockstep/data/rewrites/batch_sizes.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/aten_overrides/table_lookup.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/workers.h"

namespace lockstep::detail {
namespace {

std::vector<c10::Device> torch_devices(const std::vector<LogicalDevice>& devices) {
  std::vector<c10::Device> result;
  for (const LogicalDevice& device : devices) result.push_back(device.torch_device);
  return result;
}

}  // namespace

StrategyImpl::Team::Team(const StrategyImpl& strategy, int depth)
    : rendezvous(std::make_shared<comm::Rendezvous>(strategy.num_local_replicas())),
      groups(comm::make_local_groups(rendezvous)),
      threads(torch_devices(strategy.devices()), strategy.global_replica(0), strategy.num_workers(),
              strategy.workers() == nullptr ? 1 : strategy.workers()->sharing_cores()) {
  for (comm::Group& group : groups) {
    if (strategy.wrap_group_) group = strategy.wrap_group_(group, rendezvous);
  }
  rendezvous->set_default_timeout(env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT"));
  if (Workers* workers = strategy.workers()) {
    spread = workers->make_groups(depth == 0 ? "replicas" : c10::str("replicas in merge ", depth),
                                  strategy.num_local_replicas());
  }
}

StrategyImpl::StrategyImpl(std::vector<LogicalDevice> devices, std::shared_ptr<Workers> workers, WrapGroup wrap_group)
    : devices_(std::move(devices)), workers_(std::move(workers)), wrap_group_(std::move(wrap_group)) {
  apply_machine_defaults();
  TableLookups::prepare();
  for (const LogicalDevice& device : devices_) {
    if (!device.torch_device.is_cpu()) Placement::prepare();
  }
  if (workers_) worker_groups_ = workers_->make_groups("workers", 1);
  if (workers_ && !workers_->shares_memory())
    gradient_groups_ = workers_->make_groups("gradients", num_local_replicas());
  team_ = std::make_unique<Team>(*this, 0);
}

StrategyImpl::~StrategyImpl() = default;

std::vector<std::string> StrategyImpl::device_names() const {
  std::vector<std::string> names;
  for (const LogicalDevice& device : devices_) names.push_back(device.name);
  return names;
}

void StrategyImpl::add_run_observer(std::weak_ptr<RunObserver> observer) {
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  std::erase_if(observers_, [](const std::weak_ptr<RunObserver>& other) { return other.expired(); });
  observers_.push_back(std::move(observer));
}

std::vector<std::shared_ptr<RunObserver>> StrategyImpl::observers() {
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  std::vector<std::shared_ptr<RunObserver>> alive;
  for (const auto& weak : observers_) {
    if (auto observer = weak.lock()) alive.push_back(std::move(observer));
  }
  return alive;
}

void StrategyImpl::notify_before_run() {
  outside_changes_ = 0;
  uint64_t position = 0;
  for (const auto& observer : observers()) {
    ++position;
    if (const uint64_t changes = observer->before_run(); changes != 0) outside_changes_ ^= changes * (2 * position + 1);
  }
}

size_t StrategyImpl::observe_run() {
  notify_before_run();
  size_t fingerprint = 0;
  for (const auto& observer : observers()) fingerprint = fingerprint * 1000003 + observer->fingerprint();
  return fingerprint;
}

void StrategyImpl::observe_run_end() {
  for (const auto& observer : observers()) observer->after_run();
}

// Teams are made by the thread that runs a merge function, while all other replicas of the run wait for it.
StrategyImpl::Team& StrategyImpl::team_at(int depth) const {
  Team* team = team_.get();
  int level = 0;
  while (level < depth) {
    ++level;
    if (!team->inside_merge) team->inside_merge = std::make_unique<Team>(*this, level);
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
  if (!workers_) return run_team(team, depth, body);
  try {
    run_team(team, depth, body);
  } catch (...) {
    // Also what was thrown before the replicas started: other workers wait for this one.
    workers_->report_failure(std::current_exception());
    workers_->dump();
    throw;
  }
}

void StrategyImpl::run_team(Team& team, int depth, c10::function_ref<void(int)> body) {
  uint64_t run = 0;
  // A run inside a merge function belongs to the run around it.
  bool begins_gradients = false;
  team.threads.run(
      [&](int replica) {
        ReplicaDeviceScope device(devices_[replica].name);
        ContextGuard context({this, replica, depth, run});
        const Placement placed(placement() ? std::optional(devices_[replica].torch_device) : std::nullopt);
        const comm::SharedAllocation allocation(workers_ && workers_->shares_memory());
        const comm::OutsideChangesScope changes(outside_changes_);
        const TableLookups lookups(devices_[replica].torch_device.is_cpu());
        body(replica);
      },
      [&] {
        if (depth == 0) notify_before_run();
        team.rendezvous->reset();
        run = ++num_runs_;
        if (team.spread) team.spread->begin_run(run);
        begins_gradients = gradient_groups_ && (depth == 0 || gradients_left_);
        if (begins_gradients) {
          gradient_groups_->begin_run(run);
          gradients_left_ = false;
        }
      },
      [&](int replica, std::exception_ptr error) {
        // This also ends the waits of the threads that send gradients.
        if (error && workers_) workers_->report_failure(error);
        if (team.spread) team.spread->leave(replica, error);
        if (begins_gradients && !error) {
          gradient_groups_->leave(replica, nullptr);
          gradients_left_ = true;
        }
        team.rendezvous->leave(replica, error);
      });
  if (depth == 0) observe_run_end();
}

data::detail::InputWorker StrategyImpl::input_worker() const { return {num_workers(), worker(), num_local_replicas()}; }

int StrategyImpl::worker() const { return workers_ ? workers_->index() : 0; }

int StrategyImpl::num_workers() const { return workers_ ? workers_->count() : 1; }

comm::SharedRendezvous* StrategyImpl::shared_rendezvous() const {
  const Team& team = current_team();
  return team.spread ? team.spread->shared_rendezvous() : nullptr;
}

std::function<bool(bool)> StrategyImpl::any_worker() const {
  if (!workers_) return {};
  return [self = shared_from_this()](bool mine) {
    const at::Tensor flag = at::scalar_tensor(mine ? 1 : 0, at::kByte);
    return self->worker_group()->all_reduce(flag, ReduceOp::Max).item<uint8_t>() != 0;
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
