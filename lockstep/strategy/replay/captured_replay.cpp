#include "lockstep/strategy/replay/captured_replay.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/device/autocast_dtype.h"
#include "lockstep/device/random.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/replay/replay_checks.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// How many combinations of arguments a step keeps, and how many it forgets before it gives up.
constexpr size_t kMostGraphs = 16;
constexpr uint64_t kMostDropped = 64;
/// Runs before the one that is recorded.
constexpr int64_t kRunsBefore = 2;

template <class Number>
void append(std::string& key, Number number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void append_modes(std::string& key, const StrategyImpl& strategy) {
  append(key, at::GradMode::is_enabled());
  append(key, c10::InferenceMode::is_enabled());
  append(key, at::get_default_dtype().id());
  append(key, is_autocast_on(at::kCUDA));
  append(key, autocast_dtype(at::kCUDA));
  append(key, at::globalContext().deterministicAlgorithms());
  append(key, strategy.num_local_replicas());
}

void append_tensor(std::string& key, const at::Tensor& tensor) {
  append(key, tensor.defined());
  if (!tensor.defined()) return;
  append(key, tensor.scalar_type());
  append(key, tensor.requires_grad());
  for (const int64_t size : tensor.sizes()) append(key, size);
  append(key, ';');
}

std::string why_not_of(const StrategyImpl& strategy) {
  if (strategy.num_workers() > 1) return "a step of several workers is not recorded";
  if (strategy.parameter_device() != nullptr) return "parameters are stored once, and updated through the host";
  const c10::Device first = strategy.devices()[0].torch_device;
  for (const LogicalDevice& device : strategy.devices()) {
    if (device.torch_device != first) return "replicas are on several cards";
  }
  return why_no_captured_graph(first);
}

bool is_plain(const at::Tensor& tensor) {
  return !tensor.defined() || (tensor.layout() == at::kStrided && !tensor.requires_grad());
}

/// One recording at a time: what is called in the meantime is watched in all threads.
std::mutex& capture_mutex() {
  static std::mutex mutex;
  return mutex;
}

uint64_t state_hash(const at::Generator& generator) {
  const at::Tensor state(generator.get_state());
  return std::hash<std::string_view>()({static_cast<const char*>(state.data_ptr()), state.nbytes()});
}

}  // namespace

struct CapturedReplay::Capture {
  Capture(c10::Device device, const GraphPool& pool, c10::Stream stream)
      : turn(capture_mutex()),
        graph(make_captured_graph(device, pool)),
        watch(std::in_place, device),
        host_numbers(state_hash(at::globalContext().defaultGenerator(at::kCPU))),
        seedings(num_seedings()),
        on_stream(std::in_place, stream) {}

  std::unique_lock<std::mutex> turn;
  std::unique_ptr<CapturedGraph> graph;
  std::optional<CaptureWatch> watch;
  /// The state of the host's random numbers before.
  uint64_t host_numbers;
  uint64_t seedings;
  bool is_check = false;
  std::optional<c10::StreamGuard> on_stream;
};

CapturedReplay::CapturedReplay(StrategyImpl& strategy)
    : strategy_(strategy),
      device_(strategy.devices()[0].torch_device),
      pool_(new_graph_pool()),
      refusal_(why_not_of(strategy)),
      checks_(replay_checks_from_environment()) {
  if (strategy.num_local_replicas() == 1 || !refusal_.empty()) return;
  for (int replica = 0; replica < strategy.num_local_replicas(); ++replica) {
    generators_.push_back(at::globalContext().defaultGenerator(device_).clone());
  }
}

CapturedReplay::~CapturedReplay() = default;

void CapturedReplay::check_every(int64_t calls) { checks_ = replay_checks_every(calls); }

void CapturedReplay::refuse(const std::string& why) {
  if (!refusal_.empty()) return;
  refusal_ = why;
  steps_.clear();
  current_ = &outside_;
  LOCKSTEP_LOG(Warn) << "[pure] a step is not recorded into a CUDA graph and runs as `run` does: " << why;
}

std::string CapturedReplay::why_not() const {
  if (!refusal_.empty()) return refusal_;
  if (current_ == nullptr) return "it has not been called yet";
  if (is_nested_) return "it was called in a merge function";
  return current_->graph ? "" : c10::str("it runs ", kRunsBefore, " times before it is recorded");
}

/// Everything that selects a step: what a run depends on and a graph has no argument for.
std::string CapturedReplay::key_of(const StepArguments& arguments) const {
  std::string key = arguments.others;
  append(key, strategy_.observe_run());
  append_modes(key, strategy_);
  for (const double number : strategy_.numbers_of_observers()) append(key, number);
  for (const auto& of_replica : arguments.numbers) {
    for (const auto& number : of_replica) std::visit([&](auto value) { append(key, value); }, number);
    append(key, of_replica.size());
  }
  for (const auto& of_replica : arguments.tensors) {
    for (const at::Tensor& tensor : of_replica) append_tensor(key, tensor);
  }
  return key;
}

CapturedReplay::Step& CapturedReplay::find(const StepArguments& arguments) {
  std::unique_ptr<Step>& step = steps_[key_of(arguments)];
  if (!step) step = std::make_unique<Step>();
  step->last_call = num_calls_;
  Step& found = *step;
  if (steps_.size() > kMostGraphs) drop_oldest();
  return found;
}

void CapturedReplay::drop_oldest() {
  const auto oldest = std::min_element(steps_.begin(), steps_.end(), [](const auto& a, const auto& b) {
    return a.second->last_call < b.second->last_call;
  });
  steps_.erase(oldest);
  ++num_dropped_;
}

bool CapturedReplay::replay(const StepArguments& arguments, Tensors& results) {
  ++num_calls_;
  const ContextFrame* const frame = current_frame();
  is_nested_ = frame != nullptr && frame->depth > 0;
  current_ = &outside_;
  if (!refusal_.empty() || is_nested_) return false;
  for (const auto& of_replica : arguments.tensors) {
    if (std::all_of(of_replica.begin(), of_replica.end(), is_plain)) continue;
    refuse("an argument is sparse, or needs gradients");
    return false;
  }
  Step& step = find(arguments);
  if (num_dropped_ > kMostDropped) {
    refuse(c10::str("its arguments have had more than ", kMostGraphs + kMostDropped,
                    " combinations of sizes, numbers and modes; pad batches to a few sizes, and give numbers as tensors"));
    return false;
  }
  current_ = &step;
  if (!step.graph && step.num_runs >= kRunsBefore) {
    if (const std::string why = strategy_.why_not_captured(); !why.empty()) {
      refuse(why);
      return false;
    }
  }
  if (!step.graph || checks_.are_due(step.num_replays + 1)) return false;
  for (size_t replica = 0; replica < step.inputs.size(); ++replica) {
    copy_together(arguments.tensors[replica], step.inputs[replica]);
  }
  launch(step, results);
  trace::count_replayed_steps(strategy_.num_local_replicas(), step.num_updates);
  comm::note_replayed_run();
  strategy_.observe_run_end();
  strategy_.check_replicas_after_replay();
  return true;
}

StepReplay::Tensors CapturedReplay::on_devices(const Tensors& tensors) const {
  Tensors placed = tensors;
  for (size_t replica = 0; replica < placed.size(); ++replica) {
    const c10::Device device = strategy_.devices()[replica].torch_device;
    for (at::Tensor& tensor : placed[replica]) {
      if (tensor.defined() && tensor.device() != device) tensor = tensor.to(device);
    }
  }
  return placed;
}

const StepReplay::Tensors& CapturedReplay::begin_run(const StepArguments& arguments) {
  updates_before_ = trace::num_steps(0);
  const bool records = refusal_.empty() && !is_nested_ && current_->num_runs >= kRunsBefore;
  if (records) {
    begin_capture(arguments);
  } else {
    run_arguments_ = on_devices(arguments.tensors);
  }
  used_graphs_.emplace();
  return run_arguments_;
}

void CapturedReplay::begin_capture(const StepArguments& arguments) {
  Step& step = *current_;
  if (step.inputs.empty()) {
    step.inputs = arguments.tensors;
    for (auto& of_replica : step.inputs) {
      for (at::Tensor& tensor : of_replica) {
        if (tensor.defined()) tensor = at::empty(tensor.sizes(), tensor.options().device(device_).pinned_memory(false));
      }
    }
  }
  for (size_t replica = 0; replica < step.inputs.size(); ++replica) {
    copy_together(arguments.tensors[replica], step.inputs[replica]);
  }
  run_arguments_ = step.inputs;
  const c10::impl::VirtualGuardImpl runtime(device_.type());
  capture_ = std::make_unique<Capture>(device_, pool_, runtime.getStreamFromGlobalPool(device_));
  capture_->is_check = step.graph != nullptr;
  for (const at::Generator& generator : generators_) capture_->graph->add_generator(generator);
  strategy_.record_next_run({capture_->graph.get(), generators_});
}

bool CapturedReplay::run_failed() {
  used_graphs_.reset();
  run_arguments_.clear();
  if (!capture_) return false;
  const std::string last = capture_->watch->last_function();
  capture_.reset();
  strategy_.record_next_run({});
  refuse(last.empty() ? "it does what cannot be recorded"
                      : c10::str("it calls ", last, ", which cannot be recorded (it waits for the GPU, or reads a value)"));
  return true;
}

/// Detaches results whose graph for gradients is used up; returns whether another one has such a graph.
bool CapturedReplay::detach_used(Tensors& results) const {
  bool has_graph = false;
  for (auto& of_replica : results) {
    for (at::Tensor& result : of_replica) {
      if (!result.defined() || !result.requires_grad()) continue;
      if (used_graphs_->contains(result)) {
        result = result.detach();
      } else {
        has_graph = true;
      }
    }
  }
  return has_graph;
}

std::string CapturedReplay::why_not_recorded(bool has_graph) const {
  if (has_graph) return "a result has a graph for gradients; detach it";
  if (num_seedings() != capture_->seedings) return "it calls torch::manual_seed";
  const bool draws_here = state_hash(at::globalContext().defaultGenerator(at::kCPU)) != capture_->host_numbers;
  if (draws_here) return "it draws random numbers on the host; make them on the GPU";
  return capture_->graph->why_not();
}

bool CapturedReplay::end_run(Tensors& results) {
  run_arguments_.clear();
  const bool has_graph = detach_used(results);
  used_graphs_.reset();
  if (capture_) return finish_capture(results);
  ++current_->num_runs;
  if (has_graph && refusal_.empty() && !is_nested_) refuse("a result has a graph for gradients; detach it");
  return true;
}

bool CapturedReplay::finish_capture(Tensors& results) {
  Step& step = *current_;
  const std::string why = refusal_.empty() ? why_not_recorded(/*has_graph=*/false) : refusal_;
  const uint64_t calls = capture_->watch->calls();
  if (why.empty()) {
    const bool differs = capture_->is_check && calls != step.calls;
    step.outputs = results;
    step.graph = std::move(capture_->graph);
    step.calls = calls;
    step.used_memory = capture_->watch->used_memory();
    step.num_updates = trace::num_steps(0) - updates_before_;
    capture_.reset();
    launch(step, results);
    LOCKSTEP_CHECK_VALUE(!differs, "[pure] call ", step.num_replays, " of a step that is replayed was recorded again, to ",
                         "compare it with the graph, and the function does something else: it calls other functions of ",
                         "LibTorch, or calls them with other numbers; the calls since the last record did what that one ",
                         "did; give what changes as a tensor, or use run() in place of pure()");
    return true;
  }
  capture_.reset();
  refuse(why);
  return false;
}

void CapturedReplay::seed_generators(const Step& step) {
  if (generators_.empty() || !step.graph->draws_random_numbers()) return;
  RunSeed run;
  for (size_t replica = 0; replica < generators_.size(); ++replica) {
    generators_[replica].set_current_seed(
        replica_seed(run.get(), strategy_.global_replica(static_cast<int>(replica))));
  }
}

void CapturedReplay::launch(Step& step, Tensors& results) {
  const at::NoGradGuard no_grad;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  if (last_stream_ && *last_stream_ != stream) {
    // Graphs of one pool use the same memory.
    c10::Event event(device_.type());
    event.record(*last_stream_);
    event.block(stream);
  }
  last_stream_ = stream;
  seed_generators(step);
  step.graph->replay();
  ++step.num_replays;
  results = step.outputs;
  for (auto& of_replica : results) {
    for (at::Tensor& result : of_replica) {
      if (result.defined()) result = result.clone();
    }
  }
}

std::unique_ptr<StepReplay> make_captured_replay(StrategyImpl& strategy) {
  if (!strategy.devices()[0].torch_device.is_cuda()) return nullptr;
  return std::make_unique<CapturedReplay>(strategy);
}

}  // namespace lockstep::detail
