#include "lockstep/strategy/tpu/tpu_replay.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/device/random.h"
#include "lockstep/strategy/replay/drop_oldest.h"
#include "lockstep/strategy/replay/on_devices.h"
#include "lockstep/strategy/replay/replay_checks.h"
#include "lockstep/xla/precision.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::detail {
namespace {

/// How many combinations of arguments a step keeps.
constexpr size_t kMostSteps = 64;

template <class Number>
void append(std::string& text, Number number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void append(std::string& text, const xla::StepNumber& number) {
  std::visit([&](auto value) { append(text, value); }, number);
}

/// The position of the first tensor that has the same value as tensor `i`: the program then has one argument for both.
size_t first_with_the_value_of(size_t i, const std::vector<at::Tensor>& tensors) {
  const auto value = [](const at::Tensor& tensor) {
    const xla::LazyStorage* storage = xla::storage_of(tensor);
    return storage == nullptr ? nullptr : storage->value().get();
  };
  for (size_t first = 0; first < i; ++first) {
    if (value(tensors[first]) == value(tensors[i])) return first;
  }
  return i;
}

/// The seeds that a run of the function draws: from the replica's own generator, or from LibTorch's with one replica.
class RunSeeds {
 public:
  explicit RunSeeds(int num_replicas) : num_replicas_(num_replicas) {}

  std::vector<int64_t> draw(int replica, int64_t count) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    if (num_replicas_ > 1) {
      generator = at::make_generator<at::CPUGeneratorImpl>();
      generator.set_current_seed(replica_seed(run_.get(), replica));
    }
    std::vector<int64_t> seeds;
    for (int64_t i = 0; i < count; ++i) seeds.push_back(static_cast<int64_t>(draw_bits(generator)));
    return seeds;
  }

 private:
  int num_replicas_;
  RunSeed run_;
};

}  // namespace

std::recursive_mutex& tpu_run_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

bool ChangingNumbers::note(size_t position, const xla::StepNumber& value) {
  constexpr size_t kValues = 3;
  if (known_.size() <= position) known_.resize(position + 1);
  Known& known = known_[position];
  if (known.selects) return false;
  if (known.changes || std::find(known.values.begin(), known.values.end(), value) != known.values.end()) {
    return known.changes;
  }
  if (known.values.size() == kValues) {
    known.values.clear();
    known.changes = true;
  } else {
    known.values.push_back(value);
  }
  return known.changes;
}

void ChangingNumbers::note_selects(size_t position) {
  Known& known = known_[position];
  if (known.selects || ++known.program_changes < 2) return;
  known = {};
  known.selects = true;
}

bool ChangingNumbers::any_selects() const {
  return std::any_of(known_.begin(), known_.end(), [](const Known& known) { return known.selects; });
}

TPUReplay::TPUReplay(StrategyImpl& strategy, const xla::ReplicaDevices& devices)
    : strategy_(strategy), devices_(devices), checks_(replay_checks_from_environment()) {}

void TPUReplay::check_every(int64_t calls) { checks_ = replay_checks_every(calls); }

StepReplay::Tensors TPUReplay::placed(const Tensors& tensors) { return on_devices(strategy_, tensors); }

/// Everything that selects a step: what a trace depends on and a program has no argument for.
std::string TPUReplay::key_of(const StepArguments& arguments) {
  std::string key = arguments.others;
  append(key, strategy_.observers().before_replay());
  append(key, at::GradMode::is_enabled());
  append(key, c10::InferenceMode::is_enabled());
  append(key, at::get_default_dtype().id());
  append(key, xla::uses_full_precision());
  append(key, xla::narrows_products());
  size_t position = 0;
  for (const auto& of_replica : arguments.numbers) {
    for (const xla::StepNumber& number : of_replica) {
      if (!changing_.note(position++, number)) append(key, number);
    }
    append(key, of_replica.size());
  }
  for (size_t replica = 0; replica < arguments.tensors.size(); ++replica) {
    const auto& tensors = arguments.tensors[replica];
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i];
      append(key, tensor.defined());
      if (!tensor.defined()) continue;
      append(key, tensor.scalar_type());
      append(key, tensor.requires_grad());
      append(key, first_with_the_value_of(i, tensors));
      for (const int64_t size : tensor.sizes()) append(key, size);
      append(key, ';');
    }
  }
  return key;
}

TPUReplay::Step& TPUReplay::find(const StepArguments& arguments) {
  std::unique_ptr<Step>& step = steps_[key_of(arguments)];
  if (!step) step = std::make_unique<Step>(devices_);
  step->last_call = num_calls_;
  Step& found = *step;
  if (steps_.size() > kMostSteps) forget_oldest();
  numbers_ = arguments.numbers;
  num_given_.clear();
  for (const auto& of_replica : numbers_) num_given_.push_back(of_replica.size());
  const std::vector<double> of_optimizers = strategy_.observers().numbers();
  for (auto& of_replica : numbers_) of_replica.insert(of_replica.end(), of_optimizers.begin(), of_optimizers.end());
  return found;
}

void TPUReplay::forget_oldest() {
  if (drop_oldest(steps_).get() == current_) current_ = nullptr;
  if (std::exchange(has_dropped_, true)) return;
  LOCKSTEP_LOG(Warn) << "a pure step has been called with more than " << kMostSteps
                     << " combinations of sizes, modes and flags: those that were not used for longest are forgotten";
}

bool TPUReplay::replay(const StepArguments& arguments, Tensors& results) {
  ++num_calls_;
  if (!refusal_.empty()) return false;
  const std::lock_guard<std::recursive_mutex> turn(tpu_run_mutex());
  current_ = &find(arguments);
  if (!current_->replay.is_ready()) return false;
  RunSeeds seeds(strategy_.num_replicas_in_sync());
  const auto draw = [&](int replica, int64_t count) { return seeds.draw(replica, count); };
  if (!current_->replay.replay(arguments.tensors, numbers_, checks_, draw, results)) return false;
  trace::count_replayed_steps(strategy_.num_local_replicas(), current_->num_updates);
  comm::note_replayed_run();
  strategy_.observers().after_run();
  strategy_.check_replicas_after_replay();
  return true;
}

const StepReplay::Tensors& TPUReplay::begin_run(const StepArguments& arguments) {
  std::unique_lock<std::recursive_mutex> turn(tpu_run_mutex());
  current_ = &find(arguments);
  seedings_ = num_seedings();
  updates_before_ = trace::num_steps(0);
  current_->replay.begin_trace(arguments.tensors, numbers_, num_given_);
  turn_ = std::move(turn);
  used_graphs_.emplace();
  return arguments.tensors;
}

bool TPUReplay::end_run(Tensors& results) {
  const auto turn = std::move(turn_);
  turn_.reset();
  const bool has_graph = used_graphs_->detach(results);
  used_graphs_.reset();
  xla::Replay& replay = current_->replay;
  replay.end_trace(results, has_graph);
  current_->num_updates = trace::num_steps(0) - updates_before_;
  size_t first = 0;
  for (size_t replica = 0; replica < num_given_.size(); ++replica) {
    for (const size_t i : replay.numbers_that_select(replica)) {
      if (i < num_given_[replica]) changing_.note_selects(first + i);
    }
    first += num_given_[replica];
  }
  if (num_seedings() != seedings_) refuse("it calls torch::manual_seed");
  replay.throw_difference();
  return true;
}

bool TPUReplay::run_failed() {
  used_graphs_.reset();
  current_->replay.abandon_trace();
  turn_.reset();
  return false;
}

at::Tensor TPUReplay::without_view(const at::Tensor& result) {
  const xla::LazyStorage* storage = xla::storage_of(result);
  if (storage == nullptr) return result;
  const bool is_whole =
      result.storage_offset() == 0 && result.is_contiguous() && result.sizes() == xla::Ints(storage->value()->shape);
  return is_whole ? result : result.clone();
}

std::string TPUReplay::why_not() const {
  if (!refusal_.empty()) return refusal_;
  if (current_ == nullptr) return "it has not been called yet";
  const std::string why = current_->replay.why_not();
  if (why.empty() || !changing_.any_selects()) return why;
  return why +
         "; each value of a number that the program follows from in another way than as its number, or not at all, " +
         "is a step of its own";
}

}  // namespace lockstep::detail
