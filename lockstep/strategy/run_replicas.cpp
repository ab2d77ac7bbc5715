#include "lockstep/strategy/run_replicas.h"

#include <mutex>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/stream.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/replay/captured_replay.h"
#include "lockstep/strategy/replay/step_replay.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/xla/tensor/process_client.h"

namespace lockstep::detail {
namespace {

thread_local const RunOptions* options_of_run = nullptr;

}  // namespace

void check_can_enter(const StrategyImpl& strategy, const char* operation) {
  if (!is_strategy_entered()) return;
  LOCKSTEP_CHECK_CONTEXT(!strategy.is_default(), "[", operation,
                         "] must not nest: the default strategy cannot be entered while a ",
                         current_frame()->strategy->type_name(), " is current; leave its scope first");
  check_cross_replica(strategy, operation);
}

void check_can_run(const StrategyImpl& strategy) {
  check_can_enter(strategy, "run");
  if (strategy.is_default()) check_cross_replica(strategy, "run");
}

void check_cross_replica(const StrategyImpl& strategy, const char* operation, const char* inside_replica) {
  const ContextFrame* frame = current_frame();
  if (frame == nullptr || (frame->strategy == &strategy && frame->replica < 0)) return;
  LOCKSTEP_CHECK_CONTEXT(frame->strategy == &strategy, "[", operation, "] mixing different strategies: called on a ",
                         strategy.type_name(), " while a ", frame->strategy->type_name(),
                         " is current; leave the current strategy's scope first");
  LOCKSTEP_THROW(ContextError, "[", operation, "] requires cross-replica context, but was called inside replica ",
                 frame->replica, "; ",
                 inside_replica != nullptr ? inside_replica : "use get_replica_context().merge_call()");
}

void check_made_under_current(const StrategyImpl& strategy, const char* what) {
  const ContextFrame* frame = current_frame();
  if (frame == nullptr || frame->replica < 0 || frame->strategy == &strategy) return;
  LOCKSTEP_CHECK_CONTEXT(frame->strategy->num_replicas_in_sync() == 1, "[", what, "] all ",
                         frame->strategy->num_replicas_in_sync(), " replicas of the ", frame->strategy->type_name(),
                         " would use one ", what, ", because it was made ",
                         strategy.is_default() ? "without a strategy" : "under another strategy",
                         "; make it under strategy.scope() of the strategy whose `run` uses it");
}

bool is_in_replica_of(const StrategyImpl& strategy) {
  const ContextFrame* frame = current_frame();
  return frame != nullptr && frame->strategy == &strategy && frame->replica >= 0;
}

void call_for_each_replica(StrategyImpl& strategy, c10::function_ref<void(int)> body) {
  strategy.call_for_each_replica(body);
}

std::unique_ptr<StepReplay> make_replay(StrategyImpl& strategy) {
  auto compiled = strategy.make_replay();
  return compiled ? std::move(compiled) : make_captured_replay(strategy);
}

std::optional<c10::Device> argument_device(const StrategyImpl& strategy, int replica) {
  if (strategy.is_default() || !placement()) return std::nullopt;
  const c10::Device device = strategy.devices()[replica].torch_device;
  static const bool has_gpus = at::hasCUDA();
  const bool only_cpus = !has_gpus && !xla::is_started();
  return device.is_cpu() && only_cpus ? std::nullopt : std::optional(device);
}

at::Tensor moved_to(const at::Tensor& tensor, c10::Device device) {
  // Reading a lazy tensor executes what its device has recorded, which one thread may do at a time.
  static std::mutex reading;
  std::unique_lock<std::mutex> turn(reading, std::defer_lock);
  if (tensor.device().type() == c10::DeviceType::XLA) turn.lock();
  return tensor.to(device);
}

RunOptionsScope::RunOptionsScope(const RunOptions& options) : before_(std::exchange(options_of_run, &options)) {}

RunOptionsScope::~RunOptionsScope() { options_of_run = before_; }

RunOptions take_run_options() {
  const RunOptions* options = std::exchange(options_of_run, nullptr);
  return options == nullptr ? RunOptions() : *options;
}

int num_local_replicas(const StrategyImpl& strategy) { return strategy.num_local_replicas(); }

int global_replica(const StrategyImpl& strategy, int local) { return strategy.global_replica(local); }

bool distributes_values(const StrategyImpl& strategy) { return strategy.distributes_values(); }

void merge_rendezvous(StrategyImpl& strategy, int replica, const char* step, void* mine, const std::type_info& type,
                      c10::function_ref<void(c10::ArrayRef<void*>)> use, std::chrono::milliseconds timeout) {
  const auto publish = [&](int of) {
    strategy.before_merge(of);
    finish_stream(strategy.devices()[of].torch_device);
  };
  if (timeout != kUntilMerged) {
    publish(replica);
  } else if (replica == 0) {
    // What the merge function has recorded. The other replicas wait; it may run the strategy on their devices.
    for (int other = 0; other < strategy.num_local_replicas(); ++other) publish(other);
  }
  comm::CollectiveCall call;
  call.operation = step;
  call.payload = mine;
  call.payload_type = &type;
  comm::CollectiveScope scope(strategy.rendezvous(), replica, call, timeout);
  std::vector<void*> all;
  for (const comm::CollectiveCall* other : scope.calls()) all.push_back(other->payload);
  use(all);
  finish_stream(strategy.devices()[replica].torch_device);  // others may write to what it reads
  scope.finish();
}

void call_in_merge_context(StrategyImpl& strategy, c10::function_ref<void()> merge) {
  const ContextFrame* replica = current_frame();
  const int depth = replica == nullptr ? 1 : replica->depth + 1;
  const ContextGuard context({&strategy, -1, depth, 0, strategy.is_default()});
  // A merge function belongs to no replica.
  const Placement none(std::nullopt);
  const ContextCarrier carrier(runs_backward_elsewhere(strategy), nullptr);
  merge();
}

}  // namespace lockstep::detail
