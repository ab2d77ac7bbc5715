#include "lockstep/xla/engine/replay.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include <ATen/ATen.h>

#include "lockstep/xla/counters.h"

namespace lockstep::xla {
namespace {

using Clock = std::chrono::steady_clock;

/// Larger host tensors that a step makes are not compared: such a step is traced every time.
constexpr size_t kComparableBytes = 1 << 20;

int position_of(const Node* node, const std::vector<Value>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].get() == node) return static_cast<int>(i);
  }
  return -1;
}

/// The storage that holds an argument, or held it before it was overwritten; null if there is none.
LazyStorage* home_of(const Node& argument, const Pending& pending) {
  if (argument.owners > 0 && argument.holder != nullptr) return holder_of(argument);
  for (PendingStorage* pending_storage : pending.storages) {
    LazyStorage& storage = lazy_storage(*pending_storage);
    if (storage.before().get() == &argument) return &storage;
  }
  return nullptr;
}

bool same_constants(const Value& a, const Value& b) {
  if (a == b) return true;
  if (!a || !b || a->dtype != b->dtype || a->shape != b->shape) return false;
  const size_t bytes = static_cast<size_t>(a->numel()) * c10::elementSize(a->dtype);
  return bytes <= kComparableBytes && at::equal(download(*a), download(*b));
}

}  // namespace

/// Where an argument of the program comes from: an argument of the step, a storage that outlives it, or a constant.
struct Replay::Source {
  int argument = -1;
  std::weak_ptr<LazyStorage*> storage;
  Value constant;
  Dtype dtype = at::kFloat;
  Shape shape;
  LayoutPtr layout = nullptr;
};

/// Where a result goes: storages that outlive the step, and results of the step.
struct Replay::Sink {
  struct Holder {
    std::weak_ptr<LazyStorage*> storage;
    /// Whether it held an argument before the step: it is state, not only a result.
    bool is_state = false;

    bool is(const LazyStorage* other) const {
      const auto alive = storage.lock();
      return alive && *alive == other;
    }
  };
  std::vector<Holder> holders;
  Dtype dtype = at::kFloat;
  Shape shape;
  LayoutPtr layout = nullptr;
};

struct Replay::Number {
  uint64_t bits = 0;
  int64_t draw = -1;
  bool is_float = false;
  const char* origin = "";
};

struct Replay::Known {
  std::vector<Source> sources;
  std::vector<Sink> sinks;
  std::vector<int> donated_to;
  std::vector<uint64_t> key;
  std::vector<Number> numbers;
  /// The sink of each result of the step.
  std::vector<int> returned;
  int launches = 0;
};

Replay::Replay(const ReplicaDevices& devices) : devices_(devices.devices()) {}

Replay::~Replay() = default;

void Replay::forget(const std::string& why) {
  is_ready_ = false;
  why_not_ = why;
  now_.clear();
}

void Replay::begin_trace(const Tensors& arguments) {
  before_ = std::move(now_);
  now_.assign(devices_.size(), {});
  arguments_.assign(devices_.size(), {});
  refusal_.clear();
  is_ready_ = false;
  for (size_t replica = 0; replica < arguments.size(); ++replica) {
    for (const at::Tensor& tensor : arguments[replica]) arguments_[replica].push_back(read(tensor));
  }
  set_listener(this);
}

void Replay::abandon_trace() {
  set_listener(nullptr);
  arguments_.clear();
  forget("the last call failed");
}

void Replay::on_separate_execution(const std::string& why) { refusal_ = why; }

void Replay::on_launch(const PendingWork& work, int replica, const std::shared_ptr<const Program>& program) {
  Known& known = now_[replica];
  const Trace& trace = work.trace();
  program_ = program;
  ++known.launches;
  known.key = trace.key;
  known.donated_to = trace.donated_to;
  known.sources.clear();
  known.sinks.clear();
  known.numbers.clear();
  for (const Node* argument : trace.arguments) {
    Source source;
    source.dtype = argument->dtype;
    source.shape = argument->shape;
    source.layout = data_of(*argument).layout;
    source.argument = position_of(argument, arguments_[replica]);
    LazyStorage* home = source.argument < 0 ? home_of(*argument, work.pending()) : nullptr;
    if (home != nullptr) source.storage = home->watch();
    if (home == nullptr && source.argument < 0) source.constant = Value::reclaim_copy(const_cast<Node*>(argument));
    known.sources.push_back(std::move(source));
  }
  for (const Trace::Result& result : trace.results) {
    Sink sink{{}, result.value->dtype, result.value->shape, result.layout};
    for (PendingStorage* pending : work.pending().storages) {
      LazyStorage& storage = lazy_storage(*pending);
      if (storage.value() == result.value) sink.holders.push_back({storage.watch(), storage.before() != nullptr});
    }
    known.sinks.push_back(std::move(sink));
  }
  for (const Node* number : trace.numbers) {
    known.numbers.push_back({number_bits(*number), number->ordinal, is_float(number->dtype), number->origin});
  }
}

void Replay::end_trace(const Tensors& results) {
  set_listener(nullptr);
  arguments_.clear();
  for (size_t replica = 0; replica < results.size(); ++replica) {
    for (const at::Tensor& result : results[replica]) {
      LazyStorage* storage = storage_of(result);
      int found = -1;
      auto& sinks = now_[replica].sinks;
      for (size_t i = 0; i < sinks.size() && storage != nullptr; ++i) {
        for (const Sink::Holder& holder : sinks[i].holders) {
          if (!holder.is_state && holder.is(storage)) found = static_cast<int>(i);
        }
      }
      const bool is_whole = found >= 0 && result.is_contiguous() && result.sizes() == Ints(sinks[found].shape);
      now_[replica].returned.push_back(is_whole ? found : -1);
    }
  }
  why_not_ = compare_with_last();
  is_ready_ = why_not_.empty();
  if (!is_ready_) return;
  for (Known& known : now_) {
    // Results of the step are new tensors every time; those of this trace belong to the caller.
    for (const int sink : known.returned) {
      std::erase_if(known.sinks[sink].holders, [](const Sink::Holder& holder) { return !holder.is_state; });
    }
  }
}

/// Returns why the step cannot be replayed yet, or "".
std::string Replay::compare_with_last() const {
  if (!refusal_.empty()) return refusal_;
  for (const Known& known : now_) {
    if (known.launches > 1) return "the function reads values that need all replicas";
    if (known.launches == 0) return "the function computes nothing";
    if (std::count(known.returned.begin(), known.returned.end(), -1) > 0) {
      return "a result is no new tensor of the device: return clones of variables, and tensors that the step computed";
    }
  }
  if (before_.empty()) return "it has been called once, and must do the same twice";
  for (size_t replica = 0; replica < now_.size(); ++replica) {
    const Known& now = now_[replica];
    const Known& last = before_[replica];
    if (now.key != last.key) return "the program has changed since the last call";
    for (size_t i = 0; i < now.numbers.size(); ++i) {
      if (now.numbers[i].draw < 0 && now.numbers[i].bits != last.numbers[i].bits) {
        return std::string("a number changes from call to call, in ") + now.numbers[i].origin;
      }
    }
    for (size_t i = 0; i < now.sources.size(); ++i) {
      const Source& source = now.sources[i];
      if (source.constant && !same_constants(source.constant, last.sources[i].constant)) {
        return "the function makes a tensor on the host that changes from call to call; pass it as an argument";
      }
    }
  }
  return "";
}

/// The current value of a source; null if the step must be traced again.
Value Replay::present_value(const Source& source, const std::vector<at::Tensor>& arguments, bool is_taken) const {
  Value value = source.constant;
  if (source.argument >= 0) {
    const at::Tensor& tensor = arguments[source.argument];
    if (storage_of(tensor)->value()->op != Op::Argument) execute_pending(storage_of(tensor)->device());
    value = read(tensor);
  } else if (!value) {
    const auto alive = source.storage.lock();
    if (!alive) return {};
    LazyStorage& storage = **alive;
    if (storage.value()->op != Op::Argument) execute_pending(storage.device());
    value = storage.value();
    if (is_taken && value->owners > 1) return {};
  }
  if (value->op != Op::Argument || value->dtype != source.dtype || value->shape != source.shape) return {};
  DeviceData& data = data_of(*value);
  if (data.host.defined() && data.layout == nullptr) data.layout = source.layout;
  if (data.layout != source.layout) return {};
  ensure_uploaded(*value);
  return value;
}

void Replay::add_arguments(int replica, const std::vector<Value>& values, const DrawSeeds& draw_seeds,
                           LaunchArguments& launch) const {
  const Known& known = now_[replica];
  int64_t draws = 0;
  for (const Number& number : known.numbers) draws = std::max(draws, number.draw + 1);
  const std::vector<int64_t> seeds = draws > 0 ? draw_seeds(replica, draws) : std::vector<int64_t>{};
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  for (size_t i = 0; i < known.numbers.size(); ++i) {
    const Number& number = known.numbers[i];
    if (program_->number_is_argument[i] == 0) continue;
    if (number.is_float) {
      numbers.push_back(std::bit_cast<double>(number.bits));
    } else {
      integers.push_back(number.draw >= 0 ? seeds[number.draw] : static_cast<int64_t>(number.bits));
    }
  }
  std::vector<const Node*> nodes;
  for (const Value& value : values) nodes.push_back(value.get());
  launch.add(nodes, numbers, integers, *devices_[replica]);
}

/// Gives storages their new values and returns the results of the step.
std::vector<at::Tensor> Replay::take_results(int replica, std::vector<std::vector<Buffer>>& buffers) const {
  const Known& known = now_[replica];
  XlaDevice& device = *devices_[replica];
  std::vector<Value> fresh;
  for (size_t i = 0; i < known.sinks.size(); ++i) {
    const Sink& sink = known.sinks[i];
    auto data = take_result(buffers, static_cast<size_t>(replica), i, device, sink.layout);
    fresh.push_back(argument(std::move(data), sink.dtype, sink.shape));
    for (const Sink::Holder& holder : sink.holders) {
      if (const auto alive = holder.storage.lock()) (*alive)->settle(fresh.back());
    }
  }
  std::vector<at::Tensor> results;
  for (const int sink : known.returned) results.push_back(wrap(fresh[sink], device));
  return results;
}

bool Replay::replay(const Tensors& arguments, const DrawSeeds& draw_seeds, Tensors& results) {
  const auto begin = Clock::now();
  std::vector<std::vector<Value>> values(devices_.size());
  for (size_t replica = 0; replica < devices_.size(); ++replica) {
    const Known& known = now_[replica];
    for (size_t i = 0; i < known.sources.size(); ++i) {
      values[replica].push_back(present_value(known.sources[i], arguments[replica], known.donated_to[i] >= 0));
      if (!values[replica].back()) return false;
    }
  }
  LaunchArguments launch(devices_[0]->num_partitions());
  for (size_t replica = 0; replica < devices_.size(); ++replica) {
    add_arguments(static_cast<int>(replica), values[replica], draw_seeds, launch);
  }
  auto buffers = program_->executable.execute(launch.handles());
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
