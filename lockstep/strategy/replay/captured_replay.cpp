#include "lockstep/strategy/replay/captured_replay.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/device/autocast_dtype.h"
#include "lockstep/device/random.h"
#include "lockstep/device/stream.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/replay/drop_oldest.h"
#include "lockstep/strategy/replay/on_devices.h"
#include "lockstep/strategy/replay/replay_checks.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// How many combinations of arguments a step keeps, and how many there may be before it gives up.
constexpr size_t kMostGraphs = 16;
constexpr size_t kMostCombinations = 80;
/// Runs before the one that is recorded.
constexpr int64_t kRunsBefore = 2;

constexpr const char* kResultHasGraph = "a result has a graph for gradients; detach it";

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

std::string difference_text(int64_t call, const std::string& difference) {
  return c10::str(
      "[pure] call ", call, " of a step that is replayed was recorded again, to compare it with the graph, ",
      "and the function does something else: ", difference,
      "; the calls since the last record did what that one did; give what changes as a tensor, or use run() ",
      "in place of pure()");
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

/// Tensors for a graph to read in the place of arguments, which know whether they were written to.
StepReplay::Tensors new_inputs(const StepReplay::Tensors& arguments, c10::Device device) {
  const c10::InferenceMode with_versions(false);
  StepReplay::Tensors inputs = arguments;
  for (auto& of_replica : inputs) {
    for (at::Tensor& tensor : of_replica) {
      if (tensor.defined()) tensor = at::empty(tensor.sizes(), tensor.options().device(device).pinned_memory(false));
    }
  }
  return inputs;
}

}  // namespace

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
  steps_.clear();  // one of them may have `why`
  current_ = &outside_;
  LOCKSTEP_LOG(Warn) << "[pure] a step is not recorded into a CUDA graph and runs as `run` does: " << refusal_;
}

std::string CapturedReplay::why_not() const {
  if (!refusal_.empty()) return refusal_;
  if (current_ == nullptr) return "it has not been called yet";
  if (is_nested_) return "it was called in a merge function";
  return current_->captured ? "" : c10::str("it runs ", kRunsBefore, " times before it is recorded");
}

/// Everything that selects a step: what a run depends on and a graph has no argument for.
std::string CapturedReplay::key_of(const StepArguments& arguments) const {
  std::string key = arguments.others;
  append(key, strategy_.observers().before_replay());
  append_modes(key, strategy_);
  for (const double number : strategy_.observers().numbers()) append(key, number);
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
  const std::string key = key_of(arguments);
  known_.insert(std::hash<std::string>()(key));
  std::unique_ptr<Step>& step = steps_[key];
  if (!step) step = std::make_unique<Step>();
  step->last_call = num_calls_;
  Step& found = *step;
  if (steps_.size() > kMostGraphs) drop_oldest(steps_);
  return found;
}

bool CapturedReplay::replay(const StepArguments& arguments, Tensors& results) {
  ++num_calls_;
  difference_.clear();
  const ContextFrame* const frame = current_frame();
  is_nested_ = frame != nullptr && frame->depth > 0;
  current_ = &outside_;
  if (!refusal_.empty() || is_nested_) return false;
  const auto turn = strategy_.run_turn();
  for (const auto& of_replica : arguments.tensors) {
    if (std::all_of(of_replica.begin(), of_replica.end(), is_plain)) continue;
    refuse("an argument is sparse, or needs gradients");
    return false;
  }
  Step& step = find(arguments);
  if (known_.size() > kMostCombinations) {
    refuse(
        c10::str("its arguments have had more than ", kMostCombinations,
                 " combinations of sizes, numbers and modes; pad batches to a few sizes, and give numbers as tensors"));
    return false;
  }
  current_ = &step;
  if (!step.captured && step.num_runs >= kRunsBefore && !step.why_not.empty()) {
    refuse(step.why_not);
    return false;
  }
  if (step.captured && step.captured->overlap(arguments.tensors)) {
    current_ = &outside_;
    return false;
  }
  if (!step.captured || checks_.are_due(step.num_replays + 1)) return false;
  launch(step, arguments.tensors, results);
  trace::count_replayed_steps(strategy_.num_local_replicas(), step.captured->num_updates());
  comm::note_replayed_run();
  strategy_.observers().after_run();
  strategy_.check_replicas_after_replay();
  return true;
}

const StepReplay::Tensors& CapturedReplay::begin_run(const StepArguments& arguments) {
  const bool records = current_ != &outside_ && current_->num_runs >= kRunsBefore;
  if (records) {
    begin_recording(arguments.tensors);
  } else {
    run_arguments_ = on_devices(strategy_, arguments.tensors);
  }
  used_graphs_.emplace();
  return records ? recording_->inputs() : run_arguments_;
}

void CapturedReplay::begin_recording(const Tensors& arguments) {
  recording_.reset();
  RunRecording::Turn turn(strategy_);
  Tensors inputs = new_inputs(arguments, device_);
  const auto is_captured = [](const auto& known) { return known.second->captured != nullptr; };
  // LibTorch does not take a pool again whose graphs are all gone.
  if (std::none_of(steps_.begin(), steps_.end(), is_captured)) pool_ = new_graph_pool();
  const c10::Stream stream = capture_stream(device_);
  if (last_stream_) order_streams(*last_stream_, stream);
  last_stream_ = current_stream(device_);
  order_streams(*last_stream_, stream);
  if (!current_->captured) free_cached_memory(device_);
  const RunRecording::Place place{device_, pool_, stream, generators_};
  recording_ = std::make_unique<RunRecording>(strategy_, std::move(turn), place, std::move(inputs), arguments);
}

/// The caller's stream goes on after the one on which was recorded, which the next recording of any strategy takes.
void CapturedReplay::end_recording() {
  const auto ended = std::move(recording_);  // also where a call throws, so that others may record
  order_streams(capture_stream(device_), *last_stream_);
}

bool CapturedReplay::run_failed() {
  used_graphs_.reset();
  run_arguments_.clear();
  if (!recording_) return false;
  refuse_recorded(recording_->why_failed());
  return true;
}

void CapturedReplay::drop_recording() {
  const auto at_end = c10::make_scope_exit([this] { recording_.reset(); });
  recording_->drop();
  end_recording();
}

void CapturedReplay::refuse_recorded(const RunRecording::Failure& failure) {
  if (failure.is_of_function && current_->captured) {
    difference_ = difference_text(current_->num_replays + 1, failure.why);
  }
  drop_recording();
  refuse(failure.why);
}

bool CapturedReplay::end_run(Tensors& results) {
  const bool has_graph = used_graphs_->detach(results);
  used_graphs_.reset();
  if (recording_) return finish_recording(results, has_graph);
  run_arguments_.clear();
  current_->why_not = strategy_.observers().why_not_captured();
  ++current_->num_runs;
  if (has_graph && refusal_.empty() && !is_nested_) refuse(kResultHasGraph);
  LOCKSTEP_CHECK_VALUE(difference_.empty(), difference_);
  return true;
}

bool CapturedReplay::finish_recording(Tensors& results, bool has_graph) {
  RunRecording::Failure failure{refusal_.empty() && has_graph ? kResultHasGraph : refusal_};
  std::unique_ptr<CapturedStep> captured;
  try {
    if (failure.why.empty()) failure.why = recording_->why_not_recorded(current_->captured.get());
    failure.is_of_function = !failure.why.empty();
    if (failure.why.empty()) captured = recording_->finish(results, failure.why);
  } catch (...) {
    drop_recording();
    throw;
  }
  if (!captured) {
    refuse_recorded(failure);
    return false;
  }
  Step& step = *current_;
  const bool differs = step.captured && !recording_->calls_as(*step.captured);
  const Tensors arguments = recording_->arguments();
  end_recording();
  step.captured = std::move(captured);
  launch(step, arguments, results);
  LOCKSTEP_CHECK_VALUE(!differs, difference_text(step.num_replays,
                                                 "it calls other functions of LibTorch, or calls "
                                                 "them with other numbers"));
  return true;
}

void CapturedReplay::seed_generators(const Step& step) {
  if (generators_.empty() || !step.captured->draws_random_numbers()) return;
  RunSeed run;
  for (size_t replica = 0; replica < generators_.size(); ++replica) {
    generators_[replica].set_current_seed(replica_seed(run.get(), strategy_.global_replica(static_cast<int>(replica))));
  }
}

void CapturedReplay::launch(Step& step, const Tensors& arguments, Tensors& results) {
  const c10::Stream stream = current_stream(device_);
  if (last_stream_) order_streams(*last_stream_, stream);  // graphs of one pool use the same memory
  last_stream_ = stream;
  seed_generators(step);
  step.captured->replay(arguments, results);
  ++step.num_replays;
}

std::unique_ptr<StepReplay> make_captured_replay(StrategyImpl& strategy) {
  if (!strategy.devices()[0].torch_device.is_cuda()) return nullptr;
  return std::make_unique<CapturedReplay>(strategy);
}

}  // namespace lockstep::detail
