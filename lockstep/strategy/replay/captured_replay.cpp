#include "lockstep/strategy/replay/captured_replay.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
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
#include "lockstep/device/stream.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/replay/replay_checks.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// How many combinations of arguments a step keeps, and how many there may be before it gives up.
constexpr size_t kMostGraphs = 16;
constexpr size_t kMostCombinations = 80;
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

bool has_elements(const at::Tensor& tensor) { return tensor.defined() && tensor.numel() > 0; }

bool is_copied_by_graph(const at::Tensor& output, c10::Device device) {
  return has_elements(output) && output.device() == device && output.layout() == at::kStrided &&
         output.is_contiguous() && !output.is_conj() && !output.is_neg();
}

/// One recording at a time: what is called in the meantime is watched in all threads.
std::mutex& capture_mutex() {
  static std::mutex mutex;
  return mutex;
}

at::Generator host_generator() { return at::globalContext().defaultGenerator(at::kCPU); }

at::Tensor host_numbers() {
  at::Generator generator = host_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_host_numbers(const at::Tensor& state) {
  at::Generator generator = host_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

void order(const c10::Stream& first, const c10::Stream& second) {
  if (first == second) return;
  c10::Event event(first.device_type());
  event.record(first);
  event.block(second);
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

struct CapturedReplay::Capture {
  Capture(StrategyImpl& strategy, c10::Device device, const GraphPool& pool, c10::Stream stream)
      : run(strategy.run_turn()),
        turn(capture_mutex()),
        graph(make_captured_graph(device, pool)),
        watch(std::in_place, device),
        host_numbers(detail::host_numbers()),
        seedings(num_seedings()),
        on_stream(std::in_place, stream) {
    strategy.begin_recorded_run();
    for (const at::Tensor& parameter : strategy.parameters_of_observers()) {
      gradients.emplace_back(parameter, parameter.grad());
    }
  }

  std::unique_lock<std::recursive_mutex> run;
  std::unique_lock<std::mutex> turn;
  std::unique_ptr<CapturedGraph> graph;
  std::optional<CaptureWatch> watch;
  /// The state of the host's random numbers before.
  at::Tensor host_numbers;
  uint64_t seedings;
  bool is_check = false;
  /// Parameters, with the gradients that they had before.
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients;
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
  const std::string key = key_of(arguments);
  known_.insert(std::hash<std::string>()(key));
  std::unique_ptr<Step>& step = steps_[key];
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
}

bool CapturedReplay::replay(const StepArguments& arguments, Tensors& results) {
  ++num_calls_;
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
  if (!step.graph && step.num_runs >= kRunsBefore && !step.why_not.empty()) {
    refuse(step.why_not);
    return false;
  }
  if (!step.graph || checks_.are_due(step.num_replays + 1)) return false;
  if (overlap(step, arguments.tensors)) {
    current_ = &outside_;
    return false;
  }
  launch(step, arguments.tensors, results);
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
  const bool records = current_ != &outside_ && current_->num_runs >= kRunsBefore;
  if (records) {
    begin_capture(arguments);
  } else {
    run_arguments_ = on_devices(arguments.tensors);
  }
  used_graphs_.emplace();
  return run_arguments_;
}

StepReplay::Tensors CapturedReplay::new_inputs(const Tensors& arguments) const {
  const c10::InferenceMode with_versions(false);
  Tensors inputs = arguments;
  for (auto& of_replica : inputs) {
    for (at::Tensor& tensor : of_replica) {
      if (tensor.defined()) tensor = at::empty(tensor.sizes(), tensor.options().device(device_).pinned_memory(false));
    }
  }
  return inputs;
}

void CapturedReplay::begin_capture(const StepArguments& arguments) {
  Step& step = *current_;
  run_arguments_ = new_inputs(arguments.tensors);
  call_arguments_ = arguments.tensors;
  const auto has_graph = [](const auto& known) { return known.second->graph != nullptr; };
  // LibTorch does not take a pool again whose graphs are all gone.
  if (std::none_of(steps_.begin(), steps_.end(), has_graph)) pool_ = new_graph_pool();
  const c10::Stream stream = capture_stream(device_);
  if (last_stream_) order(*last_stream_, stream);
  order(current_stream(device_), stream);
  last_stream_ = stream;  // `launch` orders the caller's stream after it
  if (!step.graph) free_cached_memory(device_);
  capture_ = std::make_unique<Capture>(strategy_, device_, pool_, stream);
  capture_->is_check = step.graph != nullptr;
  for (const at::Generator& generator : generators_) capture_->graph->add_generator(generator);
  strategy_.record_next_run({capture_->graph.get(), generators_});
}

bool CapturedReplay::run_failed() {
  used_graphs_.reset();
  run_arguments_.clear();
  call_arguments_.clear();
  if (!capture_) return false;
  const std::string why = why_recording_failed();
  drop_recording();
  refuse(why);
  return true;
}

/// Inside of a catch block.
std::string CapturedReplay::why_recording_failed() const {
  try {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    return "there is not enough memory: a graph needs its own, beside what LibTorch keeps for other steps";
  } catch (...) {
    const std::string last = capture_->watch->last_function();
    if (last.empty()) return "it does what cannot be recorded";
    return c10::str("it calls ", last, ", which cannot be recorded (it waits for the GPU, or reads a value)");
  }
}

/// Nothing of the run was computed: what it has changed on the host becomes what it was before.
void CapturedReplay::drop_recording() {
  for (const auto& [parameter, before] : capture_->gradients) at::Tensor(parameter).mutable_grad() = before;
  strategy_.forget_recorded_run();
  set_host_numbers(capture_->host_numbers);
  strategy_.record_next_run({});
  call_arguments_.clear();
  capture_.reset();
  order(*last_stream_, current_stream(device_));
}

/// A replay neither makes nor drops gradients on the host, and does not know when those of an earlier call are others.
std::string CapturedReplay::why_not_of_gradients() const {
  std::unordered_set<const c10::StorageImpl*> used;
  for (const c10::Storage& memory : capture_->watch->used_memory()) used.insert(memory.unsafeGetStorageImpl());
  for (const auto& [parameter, before] : capture_->gradients) {
    if (before.defined() != parameter.grad().defined()) return "it leaves gradients, or drops those of an earlier call";
    const bool has_memory = before.defined() && before.layout() == at::kStrided;
    if (has_memory && used.count(before.storage().unsafeGetStorageImpl()) > 0) {
      return "it uses gradients of an earlier call; compute and use them in one call";
    }
  }
  return "";
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
  const bool draws_here = !at::equal(host_numbers(), capture_->host_numbers);
  if (draws_here) return "it draws random numbers on the host; make them on the GPU";
  if (std::string why = strategy_.why_not_captured(); !why.empty()) return why;
  if (std::string why = why_not_of_gradients(); !why.empty()) return why;
  return capture_->graph->why_not();
}

bool CapturedReplay::end_run(Tensors& results) {
  const bool has_graph = detach_used(results);
  used_graphs_.reset();
  if (capture_) return finish_capture(results);
  run_arguments_.clear();
  current_->why_not = strategy_.why_not_captured();
  ++current_->num_runs;
  if (has_graph && refusal_.empty() && !is_nested_) refuse("a result has a graph for gradients; detach it");
  return true;
}

bool CapturedReplay::finish_capture(Tensors& results) {
  std::string why = refusal_.empty() ? why_not_recorded(/*has_graph=*/false) : refusal_;
  std::unique_ptr<Step> recorded = why.empty() ? recorded_step(results, why) : nullptr;
  if (recorded && overlap(*recorded, call_arguments_)) {
    why = "its arguments share memory, and it writes to one of them";
    recorded.reset();
  }
  run_arguments_.clear();
  if (recorded) {
    const bool differs = capture_->is_check && recorded->calls != current_->calls;
    capture_.reset();
    Step& step = *current_;
    recorded->structure = step.structure;
    recorded->last_call = step.last_call;
    recorded->num_runs = step.num_runs;
    recorded->num_replays = step.num_replays;
    step = std::move(*recorded);
    launch(step, std::exchange(call_arguments_, {}), results);
    LOCKSTEP_CHECK_VALUE(
        !differs, "[pure] call ", step.num_replays, " of a step that is replayed was recorded again, to ",
        "compare it with the graph, and the function does something else: it calls other functions of ",
        "LibTorch, or calls them with other numbers; the calls since the last record did what that one ",
        "did; give what changes as a tensor, or use run() in place of pure()");
    return true;
  }
  drop_recording();
  refuse(why);
  return false;
}

/// What has been recorded, ready to be replayed; null, with the reason, where there is no memory for it.
std::unique_ptr<CapturedReplay::Step> CapturedReplay::recorded_step(const Tensors& results, std::string& why_not) {
  auto step = std::make_unique<Step>();
  step->inputs = run_arguments_;
  step->outputs = results;
  step->calls = capture_->watch->calls();
  step->used_memory = capture_->watch->used_memory();
  step->num_updates = trace::num_steps(0) - updates_before_;
  note_written(*step);
  step->graph = std::move(capture_->graph);
  try {
    finish_graph(*step);
  } catch (const c10::Error& error) {
    why_not = c10::str("its graph could not be made: ", error.what_without_backtrace());
    return nullptr;
  }
  return step;
}

void CapturedReplay::seed_generators(const Step& step) {
  if (generators_.empty() || !step.graph->draws_random_numbers()) return;
  RunSeed run;
  for (size_t replica = 0; replica < generators_.size(); ++replica) {
    generators_[replica].set_current_seed(replica_seed(run.get(), strategy_.global_replica(static_cast<int>(replica))));
  }
}

/// Arguments whose static tensors have another version than a new tensor have been written to.
void CapturedReplay::note_written(Step& step) const {
  step.written.clear();
  step.writes_arguments = false;
  for (const auto& of_replica : step.inputs) {
    std::vector<char>& written = step.written.emplace_back();
    for (const at::Tensor& input : of_replica) {
      written.push_back(input.defined() && input._version() > 0 ? 1 : 0);
      step.writes_arguments = step.writes_arguments || written.back() != 0;
    }
  }
}

bool CapturedReplay::overlap(const Step& step, const Tensors& arguments) {
  if (!step.writes_arguments) return false;
  std::vector<const void*> memory;
  for (const auto& of_replica : arguments) {
    for (const at::Tensor& argument : of_replica) {
      if (!argument.defined() || argument.numel() == 0) continue;
      memory.push_back(argument.storage().unsafeGetStorageImpl());
      const auto last = std::prev(memory.end());
      if (std::find(memory.begin(), last, *last) != last) return true;
    }
  }
  return false;
}

/// Copies into and out of the graph are part of it, for all contiguous tensors.
void CapturedReplay::finish_graph(Step& step) const {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  for (const auto& of_replica : step.inputs) {
    for (const at::Tensor& input : of_replica) {
      if (has_elements(input)) inputs.push_back(input);
    }
  }
  for (const auto& of_replica : step.outputs) {
    for (const at::Tensor& output : of_replica) {
      if (is_copied_by_graph(output, device_)) outputs.push_back(output);
    }
  }
  step.graph->finish(std::move(inputs), std::move(outputs));
}

void CapturedReplay::launch(Step& step, const Tensors& arguments, Tensors& results) {
  const at::NoGradGuard no_grad;
  const c10::Stream stream = current_stream(device_);
  if (last_stream_) order(*last_stream_, stream);  // graphs of one pool use the same memory
  last_stream_ = stream;
  seed_generators(step);
  std::vector<at::Tensor> sources;
  for (const auto& of_replica : arguments) {
    for (const at::Tensor& argument : of_replica) {
      if (has_elements(argument))
        sources.push_back(argument.to(device_, /*non_blocking=*/true).resolve_conj().resolve_neg().contiguous());
    }
  }
  results = step.outputs;
  std::vector<at::Tensor> targets;
  for (auto& of_replica : results) {
    for (at::Tensor& result : of_replica) {
      if (!is_copied_by_graph(result, device_)) continue;
      result = at::empty_like(result);
      targets.push_back(result);
    }
  }
  {
    // A recording has the generator of the device.
    const std::lock_guard<std::mutex> while_nothing_is_recorded(capture_mutex());
    step.graph->replay(sources, targets);
  }
  ++step.num_replays;
  copy_the_others(step, arguments, results);
}

/// What the graph does not copy itself: results that are not contiguous, and arguments that the function has written.
void CapturedReplay::copy_the_others(const Step& step, const Tensors& arguments, Tensors& results) const {
  for (size_t replica = 0; replica < results.size(); ++replica) {
    for (size_t i = 0; i < results[replica].size(); ++i) {
      at::Tensor& result = results[replica][i];
      if (result.defined() && result.is_same(step.outputs[replica][i])) result = result.clone();
    }
  }
  for (size_t replica = 0; step.writes_arguments && replica < arguments.size(); ++replica) {
    for (size_t i = 0; i < arguments[replica].size(); ++i) {
      const at::Tensor& argument = arguments[replica][i];
      if (step.written[replica][i] != 0 && argument.device() == device_) argument.copy_(step.inputs[replica][i]);
    }
  }
}

std::unique_ptr<StepReplay> make_captured_replay(StrategyImpl& strategy) {
  if (!strategy.devices()[0].torch_device.is_cuda()) return nullptr;
  return std::make_unique<CapturedReplay>(strategy);
}

}  // namespace lockstep::detail
