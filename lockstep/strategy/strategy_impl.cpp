#include "lockstep/strategy/strategy_impl.h"

#include "lockstep/base/env.h"
#include "lockstep/comm/backends/local/local.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/context.h"

namespace lockstep::detail {
namespace {

std::vector<c10::Device> torch_devices(const std::vector<LogicalDevice>& devices) {
  std::vector<c10::Device> result;
  for (const LogicalDevice& device : devices) result.push_back(device.torch_device);
  return result;
}

}  // namespace

StrategyImpl::Team::Team(const std::vector<LogicalDevice>& devices)
    : rendezvous(std::make_shared<comm::Rendezvous>(static_cast<int>(devices.size()))),
      groups(comm::make_local_groups(rendezvous)),
      threads(torch_devices(devices)) {
  rendezvous->set_default_timeout(env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT"));
}

StrategyImpl::StrategyImpl(std::vector<LogicalDevice> devices)
    : devices_(std::move(devices)), team_(std::make_unique<Team>(devices_)) {
  apply_machine_defaults();
}

StrategyImpl::~StrategyImpl() = default;

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

// Teams are made by the thread that runs a merge function, while all other replicas of the run wait for it.
StrategyImpl::Team& StrategyImpl::team_at(int depth) const {
  Team* team = team_.get();
  for (; depth > 0; --depth) {
    if (!team->inside_merge) team->inside_merge = std::make_unique<Team>(devices_);
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
  uint64_t run = 0;
  team.threads.run(
      [&](int replica) {
        ReplicaDeviceScope device(devices_[replica].name);
        ContextGuard context({this, replica, depth, run});
        body(replica);
      },
      [&] {
        notify_observers();
        team.rendezvous->reset();
        run = ++num_runs_;
      },
      [&](int replica, std::exception_ptr error) { team.rendezvous->leave(replica, error); });
}

}  // namespace lockstep::detail
