#include "lockstep/xla/engine/launch.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/tensor/process_client.h"

namespace lockstep::xla {
namespace {

using Clock = std::chrono::steady_clock;

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

/// A computed value is an argument and has no operands.
void become_argument(Node& node, std::unique_ptr<DeviceData> data) {
  node.op = Op::Argument;
  node.kind = 0;
  node.attributes.clear();
  node.layout = nullptr;
  node.positions.reset();
  node.needs_others = false;
  node.data = std::move(data);
  node.operands.clear();
}

void settle(Trace& trace, size_t replica, const XlaDevice& device, std::vector<std::vector<Buffer>>& of_devices) {
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    if (trace.donated_to[i] >= 0) data_of(*trace.arguments[i]).buffers.clear();
  }
  for (size_t i = 0; i < trace.results.size(); ++i) {
    const Trace::Result& result = trace.results[i];
    become_argument(*result.value, take_result(of_devices, replica, i, device, result.layout));
  }
}

/// An argument is donated only if every replica can donate it: all replicas run one program.
void agree_on_donation(at::ArrayRef<Trace*> traces) {
  for (size_t i = 0; i < traces[0]->donated_to.size(); ++i) {
    bool all_agree = true;
    for (const Trace* trace : traces) all_agree = all_agree && trace->donated_to[i] == traces[0]->donated_to[i];
    for (Trace* trace : traces) {
      if (!all_agree) trace->donated_to[i] = -1;
    }
  }
}

/// Marks arguments whose memory the program has taken over. Returns their number.
size_t lose_deleted(const std::vector<const Node*>& donated, const std::string& error) {
  size_t lost = 0;
  for (const Node* argument : donated) {
    DeviceData& data = data_of(*argument);
    const bool is_deleted =
        std::any_of(data.buffers.begin(), data.buffers.end(), [](const Buffer& buffer) { return buffer.is_deleted(); });
    if (!is_deleted) continue;
    data.buffers.clear();
    data.lost =
        "a program that updates it in place failed (" + error + "); load it from a checkpoint, or make it again";
    ++lost;
  }
  return lost;
}

void append_donated(const std::vector<const Node*>& arguments, const Trace& trace, std::vector<const Node*>& donated) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (trace.donated_to[i] >= 0) donated.push_back(arguments[i]);
  }
}

}  // namespace

std::vector<std::vector<Buffer>> execute_program(const Program& program, const LaunchArguments& arguments,
                                                 const std::vector<const Node*>& donated) {
  const trace::Span span(trace::Phase::Forward, "execute");
  const bool is_first = !program.has_succeeded.load();
  // A plugin for CPUs allocates memory when the program has started, and its memory is the host's.
  const bool keeps_arguments = is_first && client().platform() == "cpu";
  try {
    auto results = program.executable.execute(arguments.handles(), keeps_arguments);
    for (size_t device = 0; is_first && device < results.size(); ++device) {
      for (const Buffer& result : results[device]) result.wait();
    }
    program.has_succeeded.store(true);
    return results;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const size_t lost = lose_deleted(donated, text);
    if (lost == 0) throw;
    LOCKSTEP_THROW(c10::Error, text, "; the program had taken over the memory of the variables that it updates: ", lost,
                   " tensors are lost, load them from a checkpoint, or make them again");
  }
}

std::unique_ptr<DeviceData> take_result(std::vector<std::vector<Buffer>>& of_devices, size_t replica, size_t i,
                                        const XlaDevice& device, LayoutPtr layout) {
  auto data = std::make_unique<DeviceData>(device.index());
  data->layout = layout;
  const size_t partitions = device.plugin_devices().size();
  for (size_t p = 0; p < partitions; ++p) data->buffers.push_back(std::move(of_devices[replica * partitions + p][i]));
  return data;
}

void LaunchArguments::add(at::ArrayRef<const Node*> arguments, const std::vector<double>& numbers,
                          const std::vector<int64_t>& integers, const XlaDevice& device) {
  for (int i = 0; i < num_partitions_; ++i) {
    auto& handles = handles_.emplace_back();
    handles.reserve(arguments.size() + 2);
    for (const Node* argument : arguments) {
      const DeviceData& data = data_of(*argument);
      LOCKSTEP_ASSERT(static_cast<size_t>(i) < data.buffers.size(), "an argument has no data: ", describe(*argument));
      handles.push_back(data.buffers[i].handle());
    }
    const auto send_numbers = [&](const void* data, ElementType type, size_t size) {
      if (size == 0) return;
      numbers_.push_back(client().upload(data, type, {static_cast<int64_t>(size)}, device.plugin_devices()[i]));
      handles.push_back(numbers_.back().handle());
    };
    send_numbers(numbers.data(), ElementType::F64, numbers.size());
    send_numbers(integers.data(), ElementType::S64, integers.size());
  }
}

void launch_padded(at::ArrayRef<Trace*> traces, std::vector<PaddedTrace>& padded, at::ArrayRef<XlaDevice*> devices) {
  std::vector<Trace*> all;
  for (PaddedTrace& of_replica : padded) all.push_back(&of_replica.trace);
  agree_on_donation(all);
  const std::vector<const Trace*> read_only(all.begin(), all.end());
  const std::shared_ptr<const Program> program = find_program(read_only, devices);
  LaunchArguments arguments(devices[0]->num_partitions());
  std::vector<const Node*> donated;
  for (size_t replica = 0; replica < padded.size(); ++replica) {
    const auto& [trace, sources] = padded[replica];
    for (size_t i = 0; i < sources.size(); ++i) ensure_padded(*sources[i], trace.arguments[i]->shape);
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    add_numbers(trace, *program, numbers, integers);
    arguments.add({sources.data(), sources.size()}, numbers, integers, *devices[replica]);
    append_donated({sources.begin(), sources.end()}, trace, donated);
  }
  auto results = execute_program(*program, arguments, donated);
  for (size_t replica = 0; replica < padded.size(); ++replica) {
    const auto& [trace, sources] = padded[replica];
    for (size_t i = 0; i < sources.size(); ++i) {
      if (trace.donated_to[i] >= 0) data_of(*sources[i]).buffers.clear();
    }
    for (size_t i = 0; i < trace.results.size(); ++i) {
      auto data = take_result(results, replica, i, *devices[replica], nullptr);
      data->padded = trace.results[i].value->shape;
      become_argument(*traces[replica]->results[i].value, std::move(data));
    }
  }
  count([](Counters& all) {
    ++all.executions;
    ++all.padded_executions;
  });
  set_last_program(program);
}

void launch(at::ArrayRef<Trace*> traces, at::ArrayRef<XlaDevice*> devices,
            const std::function<void(const std::shared_ptr<const Program>&)>& on_launched) {
  agree_on_donation(traces);
  const std::vector<const Trace*> read_only(traces.begin(), traces.end());
  const std::shared_ptr<const Program> program = find_program(read_only, devices);
  const auto begin = Clock::now();
  LaunchArguments arguments(devices[0]->num_partitions());
  std::vector<const Node*> donated;
  for (size_t replica = 0; replica < traces.size(); ++replica) {
    const Trace& trace = *traces[replica];
    for (const Node* argument : trace.arguments) ensure_uploaded(*argument);
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    add_numbers(trace, *program, numbers, integers);
    arguments.add({trace.arguments.data(), trace.arguments.size()}, numbers, integers, *devices[replica]);
    append_donated({trace.arguments.begin(), trace.arguments.end()}, trace, donated);
  }
  auto results = execute_program(*program, arguments, donated);
  if (on_launched) on_launched(program);
  for (size_t replica = 0; replica < traces.size(); ++replica) {
    settle(*traces[replica], replica, *devices[replica], results);
  }
  count([&](Counters& all) {
    ++all.executions;
    all.launch_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  });
  set_last_program(program);
}

}  // namespace lockstep::xla
