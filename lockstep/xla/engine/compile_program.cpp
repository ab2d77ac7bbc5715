#include "lockstep/xla/engine/compile_program.h"

#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <sys/stat.h>
#include <thread>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/program_store.h"

namespace lockstep::xla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlow{2000};
constexpr int64_t kMib = 1 << 20;

std::optional<ProgramStore> program_store() {
  const auto folder = env::given("LOCKSTEP_XLA_CACHE");
  if (!folder) return std::nullopt;
  const int64_t limit = env::integer("LOCKSTEP_XLA_CACHE_MIB");
  LOCKSTEP_CHECK_VALUE(limit > 0,
                       "[environment] the variable must be a number above 0: LOCKSTEP_XLA_CACHE_MIB=", limit);
  return ProgramStore(*folder, limit * kMib);
}

/// The store, if it can be used. A folder that becomes unusable while the process runs is no reason to end it.
std::optional<ProgramStore> usable_program_store() {
  try {
    return program_store();
  } catch (const c10::ValueError& error) {
    LOCKSTEP_LOG(Warn) << "programs are compiled without LOCKSTEP_XLA_CACHE: " << error.what_without_backtrace();
    return std::nullopt;
  }
}

/// Identifies the plugin's file: the versions that plugins report are not always those of a build.
std::string file_identity(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return c10::str(status.st_size, " ", status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec);
}

/// The first processor of /proc/cpuinfo without its clock: code for CPUs uses the instructions that it has.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    if (line.find("MHz") == std::string::npos && line.find("bogomips") == std::string::npos) text += line + "\n";
  }
  return text;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = c10::str(name, "=", value == nullptr ? "" : value, "\n");
  // XLA takes a value that does not begin with '-' as the name of a file with flags.
  if (value == nullptr || *value == '\0' || *value == '-') return text;
  std::ifstream file(value);
  for (std::string line; std::getline(file, line);) text += line + "\n";
  return text;
}

/// Everything that the compiled program depends on.
std::string key_of(const Client& client, const ProgramSource& source) {
  std::string key = c10::str("plugin ", client.api_version(), " ", client.platform(), " ", client.platform_version(),
                             " ", file_identity(client.plugin()), " ", plugin_options_text(client.options()), "\n");
  for (const DeviceInfo& device : client.devices()) key += c10::str(device.id, " ", device.kind, "\n");
  if (client.platform() == "cpu") key += processor();
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS"}) key += variable(name);
  key += compile_options(source.device_ids, client.platform() == "cpu", source.full_precision, source.options);
  return key + "\n" + source.stablehlo;
}

Executable load(const Client& client, const ProgramStore& store, const std::string& key) {
  const std::optional<std::string> stored = store.find(key);
  if (!stored) return {};
  try {
    return client.load(*stored);
  } catch (const c10::Error& error) {
    LOCKSTEP_LOG(Info) << "the plugin rejects a stored program, which is compiled again: "
                       << error.what_without_backtrace();
    store.remove(key);
    return {};
  }
}

void save(const ProgramStore& store, const std::string& key, const Executable& program) {
  try {
    store.put(key, program.serialized());
  } catch (const c10::Error& error) {
    LOCKSTEP_LOG(Info) << "a program is not stored, because the plugin cannot serialize it: "
                       << error.what_without_backtrace();
  }
}

/// "compiling step for xla:0", "compiling step for xla:0 and 3 others"
std::string task_text(const ProgramSource& source) {
  size_t count = 0;
  for (const std::vector<int>& partitions : source.device_ids) count += partitions.size();
  std::string text = "compiling step for xla";
  if (count > 0) text += c10::str(":", source.device_ids[0][0]);
  if (count > 1) text += c10::str(" and ", count - 1, count == 2 ? " other" : " others");
  return text;
}

Executable compile(const Client& client, const ProgramSource& source, bool is_stored) {
  const SlowCompilationNotice notice(
      c10::str("compiling a program of ", source.num_operations, " operations takes more than ", kSlow.count() / 1000,
               " s", is_stored ? "" : "; with LOCKSTEP_XLA_CACHE=FOLDER programs are compiled once for all processes"),
      kSlow);
  const progress::Task task(task_text(source));
  return client.compile(source.stablehlo, source.device_ids, source.full_precision, source.options);
}

}  // namespace

Executable compile_program(const Client& client, const ProgramSource& source) {
  const trace::Span span(trace::Phase::Compile, "compile");
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const std::optional<ProgramStore> store = usable_program_store();
  const std::string key = store ? key_of(client, source) : std::string();
  if (store) {
    if (Executable loaded = load(client, *store, key)) {
      count([&](Counters& all) {
        ++all.loaded_programs;
        all.load_seconds += seconds();
      });
      return loaded;
    }
  }
  Executable program = compile(client, source, store.has_value());
  LOCKSTEP_LOG(Info) << "a program of " << source.num_operations << " operations was compiled in " << seconds() << " s";
  count([&](Counters& all) {
    ++all.compiles;
    all.compile_seconds += seconds();
  });
  if (store) save(*store, key, program);
  return program;
}

void check_program_store() { program_store(); }

struct SlowCompilationNotice::Timer {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::thread thread;
};

SlowCompilationNotice::SlowCompilationNotice(std::string text, std::chrono::milliseconds delay)
    : timer_(std::make_unique<Timer>()) {
  timer_->thread = std::thread([timer = timer_.get(), text = std::move(text), delay] {
    std::unique_lock<std::mutex> lock(timer->mutex);
    if (timer->changed.wait_for(lock, delay, [&] { return timer->is_over; })) return;
    LOCKSTEP_LOG(Warn) << text;
  });
}

SlowCompilationNotice::~SlowCompilationNotice() {
  {
    const std::lock_guard<std::mutex> lock(timer_->mutex);
    timer_->is_over = true;
  }
  timer_->changed.notify_one();
  timer_->thread.join();
}

}  // namespace lockstep::xla
