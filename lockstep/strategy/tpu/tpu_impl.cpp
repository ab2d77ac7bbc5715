#include "lockstep/strategy/tpu/tpu_impl.h"

#include <optional>

#include "lockstep/base/trace/trace_step.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/run_options.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/tpu/tpu_replay.h"
#include "lockstep/strategy/tpu/traced_group.h"

namespace lockstep::detail {
namespace {

/// Indices of the plugin's devices, as `[replica][logical device]`.
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

/// The device of a replica is its first logical device; its tensors are on all of them.
std::vector<LogicalDevice> replica_devices(const tpu::DeviceAssignment& assignment) {
  const std::vector<LogicalDevice> all = list_logical_devices("TPU");
  std::vector<LogicalDevice> devices;
  for (const auto& of_replica : devices_of(assignment)) {
    devices.push_back(all.at(static_cast<size_t>(of_replica[0])));
    devices.back().torch_device = xla::device_of(of_replica).torch_device();
  }
  return devices;
}

xla::RunSettings settings_of(const RunOptions& options) {
  return {.pads_rows = options.enable_dynamic_batch_size,
          .pads_to_powers_of_two = options.bucketizing_dynamic_shape,
          .compiler_options = options.xla_options};
}

/// Leaves the run when the function of a replica has ended, so that no other replica waits for it.
class LeaveRun {
 public:
  LeaveRun(xla::ReplicaRun& run, int replica) : run_(run), replica_(replica) {}
  ~LeaveRun() { run_.leave(replica_); }
  LeaveRun(const LeaveRun&) = delete;
  LeaveRun& operator=(const LeaveRun&) = delete;

 private:
  xla::ReplicaRun& run_;
  int replica_;
};

}  // namespace

TPUImpl::TPUImpl(TPUPlan plan)
    : StrategyImpl(replica_devices(plan.assignment), nullptr,
                   [](std::vector<comm::Group> hosts, const auto&) {
                     for (comm::Group& host : hosts) host = traced_group(host);
                     return hosts;
                   }),
      plan_(std::move(plan)),
      xla_devices_(devices_of(plan_.assignment)) {}

void TPUImpl::update_config(RuntimeConfig& config) const { config.isolate_session_state = true; }

void TPUImpl::before_merge(int replica) { xla::execute_pending(*xla_devices_.devices()[replica]); }

void TPUImpl::call_for_each_replica(c10::function_ref<void(int)> body) {
  const std::lock_guard<std::recursive_mutex> turn(tpu_run_mutex());
  std::unique_ptr<xla::ReplicaRun> run = xla_devices_.begin(settings_of(take_run_options()));
  const int64_t step = trace::num_steps(0) + 1;
  std::optional<xla::RunThread> of_run(std::in_place, run->id());
  const auto end_run = [&] {
    run.reset();
    of_run.reset();  // a run around this one goes on: the thread is its own again
  };
  try {
    StrategyImpl::call_for_each_replica([&](int replica) {
      const LeaveRun leave(*run, replica);
      xla::RunThread::join(run->id());  // also for what follows the function
      const xla::InUserFunction function;
      body(replica);
    });
    const trace::StepScope of_step(step);  // the program computes what the functions have recorded
    run->finish();
  } catch (const std::exception& error) {
    end_run();
    comm::dump_failed_run(std::current_exception());
    xla_devices_.roll_back(error.what());
    throw;
  } catch (...) {
    end_run();
    xla_devices_.roll_back("an exception that is no std::exception");
    throw;
  }
  end_run();
  // A run inside a merge function belongs to the run around it.
  if (current_frame() == nullptr || current_frame()->depth == 0) check_replicas();
}

std::unique_ptr<StepReplay> TPUImpl::make_replay() { return std::make_unique<TPUReplay>(*this, xla_devices_); }

}  // namespace lockstep::detail
