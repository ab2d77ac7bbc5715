#include "lockstep/xla/engine/execute.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/apart.h"
#include "lockstep/xla/engine/run.h"

namespace lockstep::xla {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<ExecutionListener*> current_listener{nullptr};

void add_numbers(const Trace& trace, const Program& program, std::vector<double>& numbers,
                 std::vector<int64_t>& integers) {
  for (size_t i = 0; i < trace.numbers.size(); ++i) {
    if (program.number_is_argument[i] == 0) continue;
    const Node& number = *trace.numbers[i];
    if (is_float(number.dtype)) {
      numbers.push_back(number.number);
    } else {
      integers.push_back(number.integer);
    }
  }
}

/// A computed value needs no operands any more; whoever holds it now holds memory.
void become_argument(Node& node, std::unique_ptr<DeviceData> data) {
  node.op = Op::Argument;
  node.kind = "";
  node.attributes.clear();
  node.layout = nullptr;
  node.needs_others = false;
  node.data = std::move(data);
  node.operands.clear();
}

void settle(Trace& trace, size_t replica, const Place& place, std::vector<std::vector<Buffer>>& of_devices) {
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    if (trace.donated_to[i] >= 0) data_of(*trace.arguments[i]).buffers.clear();
  }
  for (size_t i = 0; i < trace.results.size(); ++i) {
    const Trace::Result& result = trace.results[i];
    become_argument(*result.value, take_result(of_devices, replica, i, place, result.layout));
  }
}

/// Memory is taken over only where every replica can give it up: otherwise programs would differ.
void agree_on_donation(at::ArrayRef<Trace*> traces) {
  for (size_t i = 0; i < traces[0]->donated_to.size(); ++i) {
    bool all_agree = true;
    for (const Trace* trace : traces) all_agree = all_agree && trace->donated_to[i] == traces[0]->donated_to[i];
    for (Trace* trace : traces) {
      if (!all_agree) trace->donated_to[i] = -1;
    }
  }
}

std::vector<Place*> places_of(const std::vector<Work>& works) {
  std::vector<Place*> places;
  for (const Work& work : works) places.push_back(&work.place());
  return places;
}

/// Whether something has no elements: of a batch without rows, many operations are none at all.
bool has_empty(const Trace& trace) {
  return std::any_of(trace.nodes.begin(), trace.nodes.end(), [](const Node* node) { return node->numel() == 0; });
}

/// Throws where replicas called different functions. Where they called the same, graphs can differ by sizes: of a batch
/// of one row, or by the value of a number.
void check_same_functions(const Work& first, const Work& other, size_t replica, const TraceDifference& difference) {
  const auto& a = first.place().functions();
  const auto& b = other.place().functions();
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(),
                                          [](const char* x, const char* y) { return std::strcmp(x, y) == 0; });
  if (in_a == a.end() && in_b == b.end()) return;
  if (has_empty(first.trace()) || has_empty(other.trace())) return;
  LOCKSTEP_CHECK_COLLECTIVE(false, "[run] replicas must compute the same: as operation ", in_a - a.begin(),
                            " replica 0 calls ", in_a == a.end() ? "nothing" : *in_a, ", replica ", replica, " calls ",
                            in_b == b.end() ? "nothing" : *in_b, " (replica 0 has ", difference.first, ", replica ",
                            replica, " has ", difference.second, "); branch on values by torch::where, not by replica");
}

}  // namespace

std::unique_ptr<DeviceData> take_result(std::vector<std::vector<Buffer>>& of_devices, size_t replica, size_t i,
                                        const Place& place, LayoutPtr layout) {
  auto data = std::make_unique<DeviceData>(place.index());
  data->layout = layout;
  const size_t partitions = place.devices().size();
  for (size_t p = 0; p < partitions; ++p) data->buffers.push_back(std::move(of_devices[replica * partitions + p][i]));
  return data;
}

Work::Work(Place& place) : place_(&place), pending_(place.take()), trace_(collect(pending_.results)) {}

Work::Work(Work&& other) noexcept
    : place_(std::exchange(other.place_, nullptr)),
      pending_(std::move(other.pending_)),
      trace_(std::move(other.trace_)) {
  other.pending_.storages.clear();
}

Work::~Work() {
  for (LazyStorage* storage : pending_.storages) place_->add(*storage);
}

void Work::executed() {
  for (LazyStorage* storage : pending_.storages) storage->executed();
  pending_.storages.clear();
}

void LaunchArguments::add(at::ArrayRef<const Node*> arguments, const std::vector<double>& numbers,
                          const std::vector<int64_t>& integers, const Place& place) {
  for (int i = 0; i < num_partitions_; ++i) {
    auto& handles = handles_.emplace_back();
    handles.reserve(arguments.size() + 2);
    for (const Node* argument : arguments) handles.push_back(data_of(*argument).buffers[i].handle());
    const auto send_numbers = [&](const void* data, ElementType type, size_t size) {
      if (size == 0) return;
      numbers_.push_back(client().upload(data, type, {static_cast<int64_t>(size)}, place.devices()[i]));
      handles.push_back(numbers_.back().handle());
    };
    send_numbers(numbers.data(), ElementType::F64, numbers.size());
    send_numbers(integers.data(), ElementType::S64, integers.size());
  }
}

void launch(at::ArrayRef<Trace*> traces, at::ArrayRef<Place*> places,
            const std::function<void(const std::shared_ptr<const Program>&)>& before_they_do) {
  agree_on_donation(traces);
  const std::vector<const Trace*> read_only(traces.begin(), traces.end());
  const std::shared_ptr<const Program> program = find_program(read_only, places);
  const auto begin = Clock::now();
  LaunchArguments arguments(places[0]->num_partitions());
  for (size_t replica = 0; replica < traces.size(); ++replica) {
    const Trace& trace = *traces[replica];
    for (const Node* argument : trace.arguments) send(*argument);
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    add_numbers(trace, *program, numbers, integers);
    arguments.add({trace.arguments.data(), trace.arguments.size()}, numbers, integers, *places[replica]);
  }
  auto results = program->executable.execute(arguments.handles());
  if (before_they_do) before_they_do(program);
  for (size_t replica = 0; replica < traces.size(); ++replica) {
    settle(*traces[replica], replica, *places[replica], results);
  }
  count([&](Counters& all) {
    ++all.executions;
    all.launch_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  });
  set_last_program(program);
}

void execute_together(std::vector<Work>& works) {
  for (size_t replica = 1; replica < works.size(); ++replica) {
    const auto difference = first_difference(works[0].trace(), works[replica].trace());
    if (!difference) continue;
    if (!difference->sizes_only) check_same_functions(works[0], works[replica], replica, *difference);
    if (listener() != nullptr) listener()->on_apart("replicas have batches of different sizes");
    return execute_apart(works);
  }
  if (works[0].empty()) return;
  std::vector<Trace*> traces;
  for (Work& work : works) traces.push_back(&work.trace());
  launch(traces, places_of(works), [&](const std::shared_ptr<const Program>& program) {
    for (const Work& work : works) {
      if (listener() != nullptr && work.place().run != nullptr)
        listener()->on_launch(work, work.place().replica, program);
    }
  });
  for (Work& work : works) work.executed();
}

void execute_pending(Place& place) {
  Work work(place);
  if (work.empty()) return;
  if (work.trace().needs_others) {
    LOCKSTEP_CHECK_CONTEXT(
        place.run != nullptr,
        "[xla] a value was computed with those of other replicas in a run that failed, and is lost: ", "device=",
        place.torch_device(), "; compute it again");
    Run& run = *place.run;
    { const Work put_back = std::move(work); }
    return run.meet(place.replica);
  }
  if (listener() != nullptr && place.run != nullptr) listener()->on_apart("the function reads values of tensors");
  std::vector<Work> alone;
  alone.push_back(std::move(work));
  execute_together(alone);
}

void set_listener(ExecutionListener* listener) { current_listener.store(listener, std::memory_order_release); }

ExecutionListener* listener() { return current_listener.load(std::memory_order_acquire); }

}  // namespace lockstep::xla
