#include "lockstep/strategy/strategy_impl.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/env.h"
#include "lockstep/comm/backends/local/local.h"
#include "lockstep/comm/backends/shm/arena.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/dispatch/table_lookup.h"
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
    if (strategy.wrap_group_) group = strategy.wrap_group_(group);
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
  if (workers_) across_ = workers_->make_groups("workers", 1);
  if (workers_ && !workers_->shares_memory()) gradients_ = workers_->make_groups("gradients", num_local_replicas());
  team_ = std::make_unique<Team>(*this, 0);
}

StrategyImpl::~StrategyImpl() = default;

std::vector<std::string> StrategyImpl::device_names() const {
  std::vector<std::string> names;
  for (const LogicalDevice& device : devices_) names.push_back(device.name);
  return names;
}

void StrategyImpl::add_before_run(std::weak_ptr<BeforeRun> observer) {
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  std::erase_if(observers_, [](const std::weak_ptr<BeforeRun>& other) { return other.expired(); });
  observers_.push_back(std::move(observer));
}

void StrategyImpl::notify_observers() {
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  for (const auto& weak : observers_) {
    if (const auto observer = weak.lock()) observer->before_run();
  }
}

size_t StrategyImpl::observe_run() {
  notify_observers();
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  size_t fingerprint = 0;
  for (const auto& weak : observers_) {
    if (const auto observer = weak.lock()) fingerprint = fingerprint * 1000003 + observer->fingerprint();
  }
  return fingerprint;
}

// Teams are made by the thread that runs a merge function, while all other replicas of the run wait for it.
StrategyImpl::Team& StrategyImpl::team_at(int depth) const {
  Team* team = team_.get();
  int level = 0;
  for (; depth > 0; --depth) {
    if (!team->inside_merge) team->inside_merge = std::make_unique<Team>(*this, ++level);
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
    workers_->write_down();
    throw;
  }
}

void StrategyImpl::run_team(Team& team, int depth, c10::function_ref<void(int)> body) {
  uint64_t run = 0;
  team.threads.run(
      [&](int replica) {
        ReplicaDeviceScope device(devices_[replica].name);
        ContextGuard context({this, replica, depth, run});
        const comm::SharedAllocation allocation(workers_ && workers_->shares_memory());
        const TableLookups lookups(devices_[replica].torch_device.is_cpu());
        body(replica);
      },
      [&] {
        notify_observers();
        team.rendezvous->reset();
        run = ++num_runs_;
        if (team.spread) team.spread->begin_run(run);
      },
      [&](int replica, std::exception_ptr error) {
        if (error && workers_) workers_->tell(error);
        if (team.spread) team.spread->leave(replica, error);
        team.rendezvous->leave(replica, error);
      });
}

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
    return self->worker_group().all_reduce(flag, ReduceOp::Max).item<uint8_t>() != 0;
  };
}

std::vector<at::Tensor> StrategyImpl::of_all_replicas(std::vector<at::Tensor> local) const {
  if (!workers_) return local;
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : local) tensor = tensor.detach().to(local[0].device());
  return worker_group().all_gather(at::stack(local), 0).unbind(0);
}

std::optional<uint64_t> StrategyImpl::seed_of_first_worker() const {
  if (!workers_) return std::nullopt;
  const uint64_t own = at::globalContext().defaultGenerator(at::kCPU).current_seed();
  return static_cast<uint64_t>(
      worker_group().broadcast(at::scalar_tensor(static_cast<int64_t>(own), at::kLong), 0).item<int64_t>());
}

void StrategyImpl::take_from_first_worker(const std::vector<at::Tensor>& tensors) const {
  if (!workers_ || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> on_cpu;
  for (const at::Tensor& tensor : tensors) on_cpu.push_back(tensor.detach().to(at::kCPU));
  const auto values = worker_group().broadcast(on_cpu, 0);
  for (size_t i = 0; i < tensors.size(); ++i) at::Tensor(tensors[i]).detach().copy_(values[i]);
}

}  // namespace lockstep::detail
