#include "lockstep/xla/engine/program.h"

#include <chrono>
#include <map>
#include <unordered_map>

#include "lockstep/base/log.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/compile_program.h"
#include "lockstep/xla/engine/recompilation.h"
#include "lockstep/xla/engine/run_settings.h"
#include "lockstep/xla/graph/emit.h"
#include "lockstep/xla/precision.h"
#include "lockstep/xla/tensor/process_client.h"

namespace lockstep::xla {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// The cache entry of a trace: values of its numbers, and the program that was compiled with them.
struct Entry {
  std::vector<uint64_t> key;
  std::vector<uint64_t> constants;
  std::shared_ptr<const Program> program;
};

struct Cache {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::vector<Entry>> entries;
  Recompilations recompilations;
  std::shared_ptr<const Program> last;
};

Cache& cache() {
  static Cache& cache = *new Cache;
  return cache;
}

std::vector<std::vector<int>> device_ids(at::ArrayRef<XlaDevice*> devices) {
  std::vector<std::vector<int>> ids;
  for (const XlaDevice* device : devices) {
    ids.emplace_back();
    for (const int plugin_device : device->plugin_devices()) {
      ids.back().push_back(client().devices()[plugin_device].id);
    }
  }
  if (!joins_replicas(static_cast<int>(devices.size()), devices[0]->num_partitions())) return ids;
  std::vector<int> all;
  for (const auto& of_replica : ids) all.insert(all.end(), of_replica.begin(), of_replica.end());
  return {all};
}

/// The compiler options of the run that the devices take part in.
const CompilerOptions& compiler_options(at::ArrayRef<XlaDevice*> devices) {
  static const auto& none = *new CompilerOptions;
  return devices[0]->settings == nullptr ? none : devices[0]->settings->compiler_options;
}

/// A number for each set of options; 0 for none. Called under the cache's lock.
uint64_t number_of(const CompilerOptions& options) {
  static auto& known = *new std::map<CompilerOptions, uint64_t>{{{}, 0}};
  return known.emplace(options, known.size()).first->second;
}

/// The trace's key, and everything else that determines a program: donation, precision, devices, compiler options.
std::vector<uint64_t> full_key(const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  std::vector<uint64_t> key = trace.key;
  key.insert(key.end(), trace.donated_to.begin(), trace.donated_to.end());
  for (const XlaDevice* device : devices) key.push_back(static_cast<uint64_t>(device->index()));
  key.push_back(uses_full_precision() ? 1 : 0);
  key.push_back(number_of(compiler_options(devices)));
  return key;
}

uint64_t full_hash(const Trace& trace, const std::vector<uint64_t>& key) {
  uint64_t hash = trace.hash;
  for (size_t i = trace.key.size(); i < key.size(); ++i) hash = (hash ^ key[i]) * 1099511628211ULL;
  return hash;
}

std::shared_ptr<const Program> compile(const Trace& trace, at::ArrayRef<XlaDevice*> devices,
                                       std::vector<char> number_is_argument) {
  auto program = std::make_shared<Program>();
  const auto begin = Clock::now();
  EmitOptions options;
  options.replicas = static_cast<int>(devices.size());
  options.partitions = devices[0]->num_partitions();
  options.number_is_argument = number_is_argument;
  options.full_precision = uses_full_precision();
  program->stablehlo = emit(trace, options);
  const double emitted = seconds_since(begin);
  program->number_is_argument = std::move(number_is_argument);
  LOCKSTEP_LOG(Debug) << "compiling\n" << program->stablehlo;
  program->executable = compile_program(client(), {program->stablehlo, device_ids(devices), options.full_precision,
                                                   compiler_options(devices), trace.nodes.size()});
  count([&](Counters& all) { all.emit_seconds += emitted; });
  return program;
}

std::vector<uint64_t> bits_of_numbers(const Trace& trace) {
  std::vector<uint64_t> bits;
  bits.reserve(trace.numbers.size());
  for (const Node* number : trace.numbers) bits.push_back(number_bits(*number));
  return bits;
}

/// Marks numbers that differ from the compiled constants, or between replicas, as arguments. Returns the first, or
/// null.
const Node* numbers_that_change(const Entry& entry, at::ArrayRef<const Trace*> traces, std::vector<char>& is_argument) {
  const Node* first = nullptr;
  for (size_t i = 0; i < is_argument.size(); ++i) {
    for (const Trace* trace : traces) {
      if (is_argument[i] != 0 || number_bits(*trace->numbers[i]) == entry.constants[i]) continue;
      is_argument[i] = 1;
      if (first == nullptr) first = trace->numbers[i];
    }
  }
  return first;
}

Entry* find_entry(Cache& all, uint64_t hash, const std::vector<uint64_t>& key) {
  for (Entry& known : all.entries[hash]) {
    if (known.key == key) return &known;
  }
  return nullptr;
}

Entry& new_entry(Cache& all, uint64_t hash, std::vector<uint64_t> key, const Trace& trace) {
  auto& bucket = all.entries[hash];
  bucket.push_back({std::move(key), bits_of_numbers(trace), nullptr});
  return bucket.back();
}

}  // namespace

std::shared_ptr<const Program> find_program(at::ArrayRef<const Trace*> traces, at::ArrayRef<XlaDevice*> devices) {
  Cache& all = cache();
  const Trace& trace = *traces[0];
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<uint64_t> key = full_key(trace, devices);
  const uint64_t hash = full_hash(trace, key);
  Entry* entry = find_entry(all, hash, key);
  std::vector<char> is_argument;
  if (entry != nullptr && entry->program) {
    is_argument = entry->program->number_is_argument;
  } else {
    if (entry == nullptr) entry = &new_entry(all, hash, std::move(key), trace);
    for (const Node* number : trace.numbers) is_argument.push_back(number->always_argument ? 1 : 0);
  }
  const Node* changed = numbers_that_change(*entry, traces, is_argument);
  if (entry->program && changed == nullptr) return entry->program;
  if (entry->program) {
    all.recompilations.number_changed(trace, *changed);
  } else {
    all.recompilations.sizes_changed(trace, devices);
  }
  entry->program = compile(trace, devices, std::move(is_argument));
  entry->constants = bits_of_numbers(trace);
  return entry->program;
}

bool has_program(const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  Cache& all = cache();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const std::vector<uint64_t> key = full_key(trace, devices);
  const Entry* entry = find_entry(all, full_hash(trace, key), key);
  return entry != nullptr && entry->program != nullptr;
}

std::shared_ptr<const Program> last_program() {
  const std::lock_guard<std::mutex> lock(cache().mutex);
  return cache().last;
}

void set_last_program(std::shared_ptr<const Program> program) {
  const std::lock_guard<std::mutex> lock(cache().mutex);
  cache().last = std::move(program);
}

std::vector<std::pair<std::string, int>> collectives_of(const Program& program) {
  const std::string hlo = program.executable.optimized_program();
  std::vector<std::pair<std::string, int>> found;
  for (const std::string name : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}) {
    const std::string opcode = std::string("\x12") + static_cast<char>(name.size()) + name;  // field 2 of the message
    int times = 0;
    for (size_t at = hlo.find(opcode); at != std::string::npos; at = hlo.find(opcode, at + 1)) ++times;
    if (times > 0) found.emplace_back(name, times);
  }
  return found;
}

}  // namespace lockstep::xla
