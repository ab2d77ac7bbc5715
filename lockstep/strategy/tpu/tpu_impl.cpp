#include "lockstep/strategy/tpu/tpu_impl.h"

#include "lockstep/strategy/run_options.h"
#include "lockstep/strategy/tpu/tpu_replay.h"
#include "lockstep/strategy/tpu/traced_group.h"

namespace lockstep::detail {
namespace {

/// `[replica][logical device]`: which of the plugin's devices.
std::vector<std::vector<int>> devices_of(const tpu::DeviceAssignment& assignment) {
  std::vector<std::vector<int>> devices;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    devices.emplace_back();
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      devices.back().push_back(assignment.tpu_ordinal(replica, core));
    }
  }
  return devices;
}

/// A replica is where its first logical device is; its tensors are on all of them.
std::vector<LogicalDevice> replica_devices(const tpu::DeviceAssignment& assignment) {
  const std::vector<LogicalDevice> all = list_logical_devices("TPU");
  std::vector<LogicalDevice> devices;
  for (const auto& of_replica : devices_of(assignment)) {
    devices.push_back(all.at(static_cast<size_t>(of_replica[0])));
    devices.back().torch_device = xla::place_of(of_replica).torch_device();
  }
  return devices;
}

/// Frees those who wait for a replica when its function has ended.
class LeaveRun {
 public:
  LeaveRun(xla::Run& run, int replica) : run_(run), replica_(replica) {}
  ~LeaveRun() { run_.leave(replica_); }
  LeaveRun(const LeaveRun&) = delete;
  LeaveRun& operator=(const LeaveRun&) = delete;

 private:
  xla::Run& run_;
  int replica_;
};

}  // namespace

std::recursive_mutex& one_run_at_a_time() {
  static std::recursive_mutex mutex;
  return mutex;
}

TPUImpl::TPUImpl(TPUPlan plan)
    : StrategyImpl(replica_devices(plan.assignment), nullptr, traced_group),
      plan_(std::move(plan)),
      mesh_(devices_of(plan_.assignment)) {}

void TPUImpl::update_config(RuntimeConfig& config) const { config.isolate_session_state = true; }

void TPUImpl::before_merge(int replica) { xla::execute_pending(*mesh_.places()[replica]); }

void TPUImpl::call_for_each_replica(c10::function_ref<void(int)> body) {
  const std::lock_guard<std::recursive_mutex> turn(one_run_at_a_time());
  std::unique_ptr<xla::Run> run = mesh_.begin();
  try {
    StrategyImpl::call_for_each_replica([&](int replica) {
      const LeaveRun leave(*run, replica);
      body(replica);
    });
    run->finish();
  } catch (...) {
    run.reset();
    mesh_.roll_back();
    throw;
  }
}

std::unique_ptr<StepReplay> TPUImpl::make_replay() { return std::make_unique<TPUReplay>(*this); }

}  // namespace lockstep::detail
