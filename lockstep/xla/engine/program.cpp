#include "lockstep/xla/engine/program.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <unordered_map>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
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
  std::shared_ptr<const std::vector<uint64_t>> key;
  std::vector<uint64_t> constants;
  std::shared_ptr<const Program> program;
  /// A thread compiles it; others wait for it.
  bool is_compiling = false;
  uint64_t last_use = 0;
};

/// Which numbers are arguments of the programs of one step, whatever its sizes.
using NumberFlags = std::vector<char>;

struct Cache {
  std::mutex mutex;
  std::condition_variable compiled;
  std::unordered_multimap<uint64_t, std::shared_ptr<Entry>> entries;
  std::unordered_map<uint64_t, NumberFlags> changing_numbers;
  uint64_t num_uses = 0;
  Recompilations recompilations;
  std::shared_ptr<const Program> last;
};

/// The most steps whose changing numbers are known.
constexpr size_t kMostSteps = 4096;

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

/// What determines a program besides the trace's key: donation, precision, devices, compiler options. Called under the
/// cache's lock.
std::vector<uint64_t> end_of_key(const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  std::vector<uint64_t> end(trace.donated_to.begin(), trace.donated_to.end());
  for (const XlaDevice* device : devices) end.push_back(static_cast<uint64_t>(device->index()));
  end.push_back(uses_full_precision() ? 1 : 0);
  end.push_back(number_of(compiler_options(devices)));
  return end;
}

uint64_t full_hash(const Trace& trace, const std::vector<uint64_t>& end) {
  uint64_t hash = trace.hash;
  for (const uint64_t word : end) hash = (hash ^ word) * 1099511628211ULL;
  return hash;
}

/// The trace's key and its end.
std::vector<uint64_t> full_key(const Trace& trace, const std::vector<uint64_t>& end) {
  std::vector<uint64_t> key = trace.key;
  key.insert(key.end(), end.begin(), end.end());
  return key;
}

std::shared_ptr<Program> compile(const Trace& trace, at::ArrayRef<XlaDevice*> devices,
                                 std::vector<char> number_is_argument) {
  auto program = std::make_shared<Program>();
  const auto begin = Clock::now();
  EmitOptions options;
  options.replicas = static_cast<int>(devices.size());
  options.partitions = devices[0]->num_partitions();
  options.number_is_argument = number_is_argument;
  options.full_precision = uses_full_precision();
  const std::string stablehlo = emit(trace, options);
  const double emitted = seconds_since(begin);
  program->number_is_argument = std::move(number_is_argument);
  LOCKSTEP_LOG(Debug) << "compiling\n" << stablehlo;
  program->executable = compile_program(client(), {stablehlo, device_ids(devices), options.full_precision,
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

std::shared_ptr<Entry> find_entry(Cache& all, uint64_t hash, const std::vector<uint64_t>& key) {
  const auto [begin, end] = all.entries.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    if (*known->second->key == key) return known->second;
  }
  return nullptr;
}

std::shared_ptr<Entry> new_entry(Cache& all, uint64_t hash, std::vector<uint64_t> key, const Trace& trace) {
  auto entry = std::make_shared<Entry>();
  entry->key = std::make_shared<const std::vector<uint64_t>>(std::move(key));
  entry->constants = bits_of_numbers(trace);
  all.entries.emplace(hash, entry);
  return entry;
}

/// Identifies the operations of a step on its devices, for all sizes.
uint64_t identity_of_step(const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  uint64_t hash = trace.skeleton ^ trace.numbers.size();
  for (const XlaDevice* device : devices) hash = (hash ^ static_cast<uint64_t>(device->index() + 1)) * 1099511628211ULL;
  return hash;
}

/// Which numbers of a trace are arguments of its first program: those that changed at other sizes.
NumberFlags first_arguments(const Cache& all, const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  NumberFlags flags;
  for (const Node* number : trace.numbers) flags.push_back(number->always_argument ? 1 : 0);
  const auto known = all.changing_numbers.find(identity_of_step(trace, devices));
  if (known == all.changing_numbers.end() || known->second.size() != flags.size()) return flags;
  for (size_t i = 0; i < flags.size(); ++i) flags[i] = flags[i] | known->second[i];
  return flags;
}

int64_t program_limit() {
  const int64_t limit = env::integer("LOCKSTEP_XLA_PROGRAMS");
  LOCKSTEP_CHECK_VALUE(limit > 0, "[environment] the variable must be a number above 0: LOCKSTEP_XLA_PROGRAMS=", limit);
  return limit;
}

/// Forgets the programs that were not used for longest. Those that a replay holds live on in it.
void forget_oldest(Cache& all) {
  const auto limit = static_cast<size_t>(program_limit());
  while (all.entries.size() > limit) {
    auto oldest = all.entries.end();
    for (auto entry = all.entries.begin(); entry != all.entries.end(); ++entry) {
      if (entry->second->is_compiling) continue;
      if (oldest == all.entries.end() || entry->second->last_use < oldest->second->last_use) oldest = entry;
    }
    if (oldest == all.entries.end()) return;
    all.entries.erase(oldest);
    count([](Counters& counters) { ++counters.forgotten_programs; });
  }
}

/// After a compilation that failed: an entry without a program stays only for threads that wait for it.
void drop_failed(Cache& all, uint64_t hash, const std::shared_ptr<Entry>& entry) {
  constexpr long kTableAndCaller = 2;
  if (entry->program || entry.use_count() > kTableAndCaller) return;
  const auto [begin, end] = all.entries.equal_range(hash);
  const auto found = std::find_if(begin, end, [&](const auto& known) { return known.second == entry; });
  if (found != end) all.entries.erase(found);
}

/// Compiles without the lock, so that other programs can be found and compiled meanwhile.
void compile_entry(Cache& all, uint64_t hash, const std::shared_ptr<Entry>& of_trace,
                   std::unique_lock<std::mutex>& lock, const Trace& trace, at::ArrayRef<XlaDevice*> devices,
                   NumberFlags is_argument) {
  Entry& entry = *of_trace;
  entry.is_compiling = true;
  lock.unlock();
  std::shared_ptr<Program> program;
  try {
    program = compile(trace, devices, std::move(is_argument));
  } catch (...) {
    lock.lock();
    entry.is_compiling = false;
    all.compiled.notify_all();
    drop_failed(all, hash, of_trace);
    throw;
  }
  lock.lock();
  entry.constants = bits_of_numbers(trace);
  program->hash = hash;
  program->key = entry.key;
  program->constants = entry.constants;
  entry.program = std::move(program);
  entry.is_compiling = false;
  all.compiled.notify_all();
}

}  // namespace

std::shared_ptr<const Program> find_program(at::ArrayRef<const Trace*> traces, at::ArrayRef<XlaDevice*> devices) {
  Cache& all = cache();
  const Trace& trace = *traces[0];
  std::unique_lock<std::mutex> lock(all.mutex);
  const std::vector<uint64_t> end = end_of_key(trace, devices);
  std::vector<uint64_t> key = full_key(trace, end);
  const uint64_t hash = full_hash(trace, end);
  std::shared_ptr<Entry> entry = find_entry(all, hash, key);
  if (!entry || !entry->program) program_limit();  // throws before anything is compiled
  if (!entry) entry = new_entry(all, hash, std::move(key), trace);
  all.compiled.wait(lock, [&] { return !entry->is_compiling; });
  entry->last_use = ++all.num_uses;
  NumberFlags is_argument = entry->program ? entry->program->number_is_argument : first_arguments(all, trace, devices);
  const Node* changed = numbers_that_change(*entry, traces, is_argument);
  if (entry->program && changed == nullptr) return entry->program;
  if (entry->program) {
    all.recompilations.number_changed(trace, *changed);
    if (all.changing_numbers.size() >= kMostSteps) all.changing_numbers.clear();
    all.changing_numbers[identity_of_step(trace, devices)] = is_argument;
  } else {
    all.recompilations.sizes_changed(trace, devices);
  }
  compile_entry(all, hash, entry, lock, trace, devices, std::move(is_argument));
  forget_oldest(all);
  return entry->program;
}

void keep_program(const std::shared_ptr<const Program>& program) {
  Cache& all = cache();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::shared_ptr<Entry> entry = find_entry(all, program->hash, *program->key);
  if (!entry) {
    entry = std::make_shared<Entry>(Entry{program->key, program->constants, program});
    all.entries.emplace(program->hash, entry);
  }
  entry->last_use = ++all.num_uses;
  forget_oldest(all);
}

void check_program_limit() { program_limit(); }

bool has_program(const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  Cache& all = cache();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const std::vector<uint64_t> end = end_of_key(trace, devices);
  const auto entry = find_entry(all, full_hash(trace, end), full_key(trace, end));
  return entry != nullptr && entry->program != nullptr;
}

bool may_have_program(const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  Cache& all = cache();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.entries.count(full_hash(trace, end_of_key(trace, devices))) > 0;
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
