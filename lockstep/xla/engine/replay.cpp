#include "lockstep/xla/engine/replay.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/counters.h"

namespace lockstep::xla {
namespace {

using Clock = std::chrono::steady_clock;

/// Whether a tensor is all of its storage, in the shape of its value.
bool is_whole(const at::Tensor& tensor) {
  const LazyStorage& storage = *storage_of(tensor);
  return tensor.storage_offset() == 0 && tensor.is_contiguous() && tensor.sizes() == Ints(storage.value()->shape);
}

}  // namespace

bool ReplayChecks::are_due(int64_t call) const {
  if (every <= 0) return false;
  return call % every == 0 || std::find(at.begin(), at.end(), call) != at.end();
}

Replay::Replay(const ReplicaDevices& devices) : devices_(devices.devices()) {}

Replay::~Replay() = default;

void Replay::forget(const std::string& why) {
  is_ready_ = false;
  is_check_ = false;
  why_not_ = why;
  now_.clear();
}

void Replay::begin_trace(const Tensors& arguments, const Numbers& numbers, const std::vector<size_t>& num_from_caller) {
  ++num_calls_;
  before_ = std::move(now_);
  now_.assign(devices_.size(), {});
  arguments_.assign(devices_.size(), {});
  refusal_.clear();
  if (is_ready_) keep_program(program_);  // replays are no uses of it
  is_ready_ = false;
  for (size_t replica = 0; replica < arguments.size(); ++replica) {
    now_[replica].given = numbers[replica];
    now_[replica].num_from_caller = num_from_caller[replica];
    for (size_t i = 0; i < arguments[replica].size(); ++i) {
      const at::Tensor& tensor = arguments[replica][i];
      arguments_[replica].push_back(storage_of(tensor));
      if (!tensor.defined() || is_whole(tensor)) continue;
      refusal_ = "argument " + std::to_string(i) + " is a view of another tensor; pass a copy, or the whole tensor";
    }
  }
  set_listener(this);
}

void Replay::abandon_trace() {
  set_listener(nullptr);
  arguments_.clear();
  forget("the last call failed");
}

void Replay::on_separate_execution(const std::string& why) {
  const std::lock_guard<std::mutex> lock(notes_);
  refusal_ = why;
}

void Replay::on_launch(const PendingWork& work, int replica, const std::shared_ptr<const Program>& program) {
  const std::lock_guard<std::mutex> lock(notes_);
  program_ = program;
  now_[replica].record(work, arguments_[replica]);
}

void Replay::end_trace(const Tensors& results, bool has_graph) {
  set_listener(nullptr);
  arguments_.clear();
  for (size_t replica = 0; replica < results.size(); ++replica) now_[replica].set_results(results[replica]);
  why_not_ = compare_with_last(has_graph);
  now_selects_.assign(devices_.size(), {});
  for (size_t replica = 0; replica < before_.size(); ++replica) {
    now_selects_[replica] = now_[replica].numbers_that_select(before_[replica]);
  }
  is_ready_ = why_not_.empty();
  // A replay copes with arguments and variables in a state that cannot be recorded.
  if (is_check_ && !is_ready_ && why_not_ != first_refusal()) {
    difference_ =
        c10::str("[pure] call ", num_calls_, " of a step that is replayed was traced, to compare its function ",
                 "with the program, and the function does something else: ", why_not_, "; calls ", first_replayed_,
                 " to ", num_calls_ - 1, " were replayed without it. A pure step depends on ",
                 "its arguments and on state on the devices, and reads no values (docs/tpu.md, Pure steps)");
    forget(why_not_);
  }
  is_check_ = false;
  before_.clear();
  if (!is_ready_) return;
  first_replayed_ = num_calls_ + 1;
  for (RecordedStep& step : now_) {
    // Results of the step are new tensors every time; those of this trace belong to the caller.
    for (const int sink : step.returned) {
      std::erase_if(step.sinks[sink].holders,
                    [](const RecordedStep::Sink::Holder& holder) { return !holder.is_state; });
    }
  }
}

void Replay::throw_difference() {
  if (difference_.empty()) return;
  const std::string text = std::move(difference_);
  difference_.clear();
  LOCKSTEP_THROW(c10::ValueError, text);
}

/// What forbids to record the last call, or "".
std::string Replay::first_refusal() const {
  if (!refusal_.empty()) return refusal_;
  for (const RecordedStep& step : now_) {
    if (!step.refusal.empty()) return step.refusal;
  }
  return "";
}

/// Returns why the step cannot be replayed yet, or "".
std::string Replay::compare_with_last(bool has_graph) {
  for (const XlaDevice* device : devices_) {
    if (const std::string read = device->first_read(); !read.empty()) {
      return "the function reads values of tensors, by " + read;
    }
  }
  if (const std::string refusal = first_refusal(); !refusal.empty()) return refusal;
  for (const RecordedStep& step : now_) {
    if (step.launches > 1) return "the function reads values that need all replicas";
    if (step.launches == 0) return "the function computes nothing";
    if (std::count(step.returned.begin(), step.returned.end(), -1) > 0) {
      return "a result is no new tensor of the device: return clones of variables, and tensors that the step computed";
    }
  }
  if (before_.empty()) return "it has been called once, and must do the same twice";
  for (size_t replica = 0; replica < now_.size(); ++replica) {
    if (std::string difference = now_[replica].compare_with(before_[replica]); !difference.empty()) return difference;
    for (size_t i = 0; i < now_[replica].numbers.size(); ++i) {
      const bool varies = now_[replica].numbers[i].argument >= 0;
      if (varies && program_->number_is_argument[i] == 0) return "a number that it is called with has changed once";
    }
  }
  if (has_graph) return "a result has a graph for gradients, which a replay does not make: return result.detach()";
  return "";
}

/// The current value of a source; null if the step must be traced again.
Value Replay::present_value(const RecordedStep::Source& source, size_t replica,
                            const std::vector<at::Tensor>& arguments, bool is_taken) const {
  Value value = source.constant;
  if (source.argument >= 0) {
    const at::Tensor& tensor = arguments[source.argument];
    if (!tensor.defined() || !is_whole(tensor)) return {};
    storage_of(tensor)->compute();
    value = storage_of(tensor)->value();
  } else if (!value) {
    const std::lock_guard<std::recursive_mutex> lock(devices_[replica]->mutex());
    const auto alive = source.storage.lock();
    if (!alive || (*alive)->is_pending()) return {};
    value = (*alive)->value();
    if (is_taken && value->owners.load() > 1) return {};
  }
  if (value->op != Op::Argument || value->dtype != source.dtype || value->shape != source.shape) return {};
  DeviceData& data = data_of(*value);
  if (data.host.defined() && data.layout == nullptr) data.layout = source.layout;
  if (data.layout != source.layout) return {};
  ensure_uploaded(*value);
  return value;
}

/// Whether the numbers are the last ones, except for those that the program has as arguments, and the program holds for
/// them.
bool Replay::knows(const Numbers& numbers) const {
  for (size_t replica = 0; replica < now_.size(); ++replica) {
    const RecordedStep& step = now_[replica];
    if (numbers[replica].size() != step.given.size()) return false;
    for (size_t i = 0; i < step.given.size(); ++i) {
      if (step.given_changes[i] == 0 && numbers[replica][i] != step.given[i]) return false;
    }
    for (const auto& [a, b] : step.equal_given) {
      if (numbers[replica][a] != numbers[replica][b]) return false;
    }
    for (const RecordedStep::Number& number : step.numbers) {
      if (number.argument >= 0 && !number.allows(numbers[replica][number.argument])) return false;
    }
  }
  return true;
}

void Replay::add_arguments(int replica, const std::vector<Value>& values, const std::vector<StepNumber>& given,
                           const DrawSeeds& draw_seeds, LaunchArguments& launch) const {
  const RecordedStep& step = now_[replica];
  int64_t draws = 0;
  for (const RecordedStep::Number& number : step.numbers) draws = std::max(draws, number.draw + 1);
  const std::vector<int64_t> seeds = draws > 0 ? draw_seeds(replica, draws) : std::vector<int64_t>{};
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  for (size_t i = 0; i < step.numbers.size(); ++i) {
    const RecordedStep::Number& number = step.numbers[i];
    if (program_->number_is_argument[i] == 0) continue;
    const uint64_t bits = step.number_bits_with(number, given);
    if (is_float(number.dtype)) {
      numbers.push_back(std::bit_cast<double>(bits));
    } else {
      integers.push_back(number.draw >= 0 ? seeds[number.draw] : static_cast<int64_t>(bits));
    }
  }
  std::vector<const Node*> nodes;
  for (const Value& value : values) nodes.push_back(value.get());
  launch.add(nodes, numbers, integers, *devices_[replica]);
}

/// Gives storages their new values and returns the results of the step.
std::vector<at::Tensor> Replay::take_results(int replica, std::vector<std::vector<Buffer>>& buffers) const {
  const RecordedStep& step = now_[replica];
  XlaDevice& device = *devices_[replica];
  std::vector<Value> fresh;
  for (size_t i = 0; i < step.sinks.size(); ++i) {
    const RecordedStep::Sink& sink = step.sinks[i];
    auto data = take_result(buffers, static_cast<size_t>(replica), i, device, sink.layout);
    fresh.push_back(argument(std::move(data), sink.dtype, sink.shape));
    const std::lock_guard<std::recursive_mutex> lock(device.mutex());
    for (const RecordedStep::Sink::Holder& holder : sink.holders) {
      if (const auto alive = holder.storage.lock()) (*alive)->settle(fresh.back());
    }
  }
  std::vector<at::Tensor> results;
  for (const int sink : step.returned) results.push_back(wrap(fresh[sink], device));
  return results;
}

bool Replay::replay(const Tensors& arguments, const Numbers& numbers, const ReplayChecks& checks,
                    const DrawSeeds& draw_seeds, Tensors& results) {
  const auto begin = Clock::now();
  const ReplayedRun run(devices_);
  for (XlaDevice* device : devices_) {
    if (device->has_pending()) execute_before_run(*device);
  }
  std::vector<std::vector<Value>> values(devices_.size());
  std::vector<const Node*> donated;
  for (size_t replica = 0; replica < devices_.size(); ++replica) {
    const RecordedStep& step = now_[replica];
    for (size_t i = 0; i < step.sources.size(); ++i) {
      const bool is_taken = step.donated_to[i] >= 0;
      values[replica].push_back(present_value(step.sources[i], replica, arguments[replica], is_taken));
      if (!values[replica].back()) {
        forget("state was replaced, or the caller has a tensor over its memory");
        return false;
      }
      if (is_taken) donated.push_back(values[replica].back().get());
    }
  }
  if (!knows(numbers)) {
    why_not_ = "a number that it is called with has changed for the first time, or is out of the range of the program";
    return false;
  }
  if (checks.are_due(num_calls_ + 1)) {
    is_check_ = true;
    return false;
  }
  LaunchArguments launch(devices_[0]->num_partitions());
  for (size_t replica = 0; replica < devices_.size(); ++replica) {
    add_arguments(static_cast<int>(replica), values[replica], numbers[replica], draw_seeds, launch);
  }
  auto buffers = execute_program(*program_, launch, donated);
  ++num_calls_;
  results.clear();
  for (size_t replica = 0; replica < devices_.size(); ++replica) {
    for (size_t i = 0; i < values[replica].size(); ++i) {
      if (now_[replica].donated_to[i] >= 0) data_of(*values[replica][i]).buffers.clear();
    }
    results.push_back(take_results(static_cast<int>(replica), buffers));
  }
  count([&](Counters& all) {
    ++all.executions;
    ++all.replays;
    all.launch_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  });
  return true;
}

}  // namespace lockstep::xla
