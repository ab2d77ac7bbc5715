#include "lockstep/strategy/replay/run_recording.h"

#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/device/random.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

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

}  // namespace

RunRecording::Turn::Turn(StrategyImpl& strategy) : of_strategy(strategy.run_turn()), of_process(recording_mutex()) {}

RunRecording::RunRecording(StrategyImpl& strategy, Turn turn, const Place& place, Tensors inputs, Tensors arguments)
    : strategy_(strategy),
      turn_(std::move(turn)),
      device_(place.device),
      inputs_(std::move(inputs)),
      arguments_(std::move(arguments)),
      updates_before_(trace::num_steps(0)),
      graph_(make_captured_graph(place.device, place.pool)),
      watch_(place.device),
      numbers_before_(host_numbers()),
      seedings_before_(num_seedings()),
      on_stream_(place.stream) {
  for (const at::Generator& generator : place.generators) graph_->add_generator(generator);
  for (const at::Tensor& parameter : strategy.observers().parameters()) {
    gradients_.emplace_back(parameter, parameter.grad());
  }
  strategy.observers().begin_recorded_run();
  strategy.record_next_run({graph_.get(), place.generators});
}

RunRecording::~RunRecording() { strategy_.record_next_run({}); }

RunRecording::Failure RunRecording::why_failed() const {
  try {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    return {"there is not enough memory: a graph needs its own, beside what LibTorch keeps for other steps"};
  } catch (...) {
    const std::string text = error_text(std::current_exception());
    // CUDA and LibTorch say that something is not permitted while a stream is capturing, or during capture.
    const bool is_refused = text.find(" captur") != std::string::npos;
    const std::string last = watch_.last_function();
    if (!is_refused || last.empty()) {
      return {c10::str("it throws while it is recorded", last.empty() ? "" : ", after " + last, ": ", text),
              is_refused};
    }
    return {c10::str("it calls ", last, ", which cannot be recorded (it waits for the GPU, or reads a value)"), true};
  }
}

void RunRecording::drop() {
  for (const auto& [parameter, before] : gradients_) at::Tensor(parameter).mutable_grad() = before;
  strategy_.observers().forget_recorded_run();
  set_host_numbers(numbers_before_);
}

/// A replay neither makes nor drops gradients on the host, and does not know when those of an earlier call are others.
std::string RunRecording::why_not_of_gradients() const {
  std::unordered_set<const c10::StorageImpl*> used;
  for (const c10::Storage& memory : watch_.used_memory()) used.insert(memory.unsafeGetStorageImpl());
  for (const auto& [parameter, before] : gradients_) {
    if (before.defined() != parameter.grad().defined()) return "it leaves gradients, or drops those of an earlier call";
    const bool has_memory = before.defined() && before.layout() == at::kStrided;
    if (has_memory && used.count(before.storage().unsafeGetStorageImpl()) > 0) {
      return "it uses gradients of an earlier call; compute and use them in one call";
    }
  }
  return "";
}

std::string RunRecording::why_not_recorded(const CapturedStep* before) const {
  // Other threads may draw on the host, too: a function that calls what it called before does not.
  if (before == nullptr || !calls_as(*before)) {
    if (num_seedings() != seedings_before_) return "it calls torch::manual_seed";
    const bool draws_here = !at::equal(host_numbers(), numbers_before_);
    if (draws_here) return "it draws random numbers on the host; make them on the GPU";
  }
  if (std::string why = strategy_.observers().why_not_captured(); !why.empty()) return why;
  if (std::string why = why_not_of_gradients(); !why.empty()) return why;
  return graph_->why_not();
}

std::unique_ptr<CapturedStep> RunRecording::finish(const Tensors& results, std::string& why_not) {
  CapturedStep::Recorded recorded{.inputs = inputs_,
                                  .outputs = results,
                                  .used_memory = watch_.used_memory(),
                                  .graph = std::move(graph_),
                                  .calls = watch_.calls(),
                                  .num_updates = trace::num_steps(0) - updates_before_};
  std::unique_ptr<CapturedStep> step;
  try {
    step = std::make_unique<CapturedStep>(device_, std::move(recorded));
  } catch (const c10::Error& error) {
    why_not = c10::str("its graph could not be made: ", error.what_without_backtrace());
    return nullptr;
  }
  if (!step->overlap(arguments_)) return step;
  why_not = "its arguments share memory, and it writes to one of them";
  return nullptr;
}

}  // namespace lockstep::detail
