#include "lockstep/base/trace/trace_writer.h"

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <unistd.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host_name.h"
#include "lockstep/base/json_text.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_file.h"
#include "lockstep/base/trace/trace_kernels.h"
#include "lockstep/base/trace/trace_lane.h"

namespace lockstep::trace {
namespace {

using detail::Lane;
using detail::TraceEvent;
using detail::TraceFile;

/// How long an event may stay in memory.
constexpr std::chrono::milliseconds kFlushInterval{50};
/// How long a step waits until kernels are recorded.
constexpr std::chrono::seconds kKernelStart{10};
/// How long the end of the last step is waited for after its update.
constexpr std::chrono::seconds kLastSpans{2};

void append_number(std::string& text, int64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  text.append(digits.data(), end.ptr);
}

void append_microseconds(std::string& text, int64_t nanoseconds) {
  if (nanoseconds < 0) text += '-';
  const auto whole = static_cast<uint64_t>(std::abs(nanoseconds));
  append_number(text, static_cast<int64_t>(whole / 1000));
  text += {'.', static_cast<char>('0' + whole % 1000 / 100), static_cast<char>('0' + whole % 100 / 10),
           static_cast<char>('0' + whole % 10)};
}

/// Names are string literals of lockstep, which need no escapes.
void set_event_text(const TraceEvent& event, const TraceWorker& worker, int lane, std::string& text) {
  text = "{\"name\":\"";
  text += event.name;
  text += "\",\"cat\":\"";
  text += phase_name(event.phase);
  text += "\",\"ph\":\"X\",\"ts\":";
  append_microseconds(text, event.begin + worker.clock_offset);
  text += ",\"dur\":";
  append_microseconds(text, event.end - event.begin);
  text += ",\"pid\":";
  append_number(text, worker.index);
  text += ",\"tid\":";
  append_number(text, lane);
  text += ",\"args\":{\"step\":";
  append_number(text, event.step);
  if (event.bytes != 0) {
    text += ",\"bytes\":";
    append_number(text, static_cast<int64_t>(event.bytes));
  }
  if (!event.reduce_op.empty()) {
    text += ",\"reduce_op\":\"";
    text += event.reduce_op;
    text += '"';
  }
  if (event.dtype >= 0) {
    text += ",\"dtype\":\"";
    text += dtype_name(static_cast<c10::ScalarType>(event.dtype));
    text += '"';
  }
  text += "}}";
}

/// Rows of GPUs are below those of threads.
int row_of(const detail::KernelEvent& kernel) {
  return 1'000'000 + kernel.device * 10'000 + static_cast<int>(kernel.stream % 10'000);
}

std::string metadata(std::string_view what, const TraceWorker& worker, int lane, const std::string& arguments) {
  return c10::str("{\"name\":\"", what, "\",\"ph\":\"M\",\"pid\":", worker.index, ",\"tid\":", lane, ",\"args\":{",
                  arguments, "}}");
}

/// The trace of this process. It is never destroyed: threads may outlive static objects.
struct TraceSession {
  std::mutex mutex;
  std::condition_variable changed;
  TraceWorker worker;
  TraceOptions options;
  std::string last_path;
  bool is_active = false;
  bool is_ending = false;
  bool is_environment_read = false;
  /// Whether kernels are to be recorded, and whether this was begun, with or without success.
  bool wants_kernels = false;
  bool has_begun_kernels = false;
  bool records_kernels = false;
  pid_t process = 0;
  std::unique_ptr<TraceFile> file;
  std::string line;
  std::thread thread;

  void start(const TraceOptions& given);
  void serve();
  void finish();
  /// Moves all events of all threads to the file; with the lock held.
  void drain();
  void open();
  /// The range begins with the next step: waits until kernels are recorded.
  void begin_range();
  void write_kernels();
  bool is_over() const;
};

TraceSession& session() {
  static auto* const instance = new TraceSession;
  return *instance;
}

std::string file_in(const std::string& folder, int worker) {
  return (folder.empty() ? std::string(".") : folder) + "/trace_worker" + std::to_string(worker) + ".json";
}

void check_folder(const std::string& folder) {
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  LOCKSTEP_CHECK_VALUE(!error && ::access(folder.c_str(), W_OK) == 0,
                       "[trace] the folder must be writable: folder=", folder, "; choose another one");
}

void TraceSession::start(const TraceOptions& given) {
  LOCKSTEP_CHECK_VALUE(
      given.first_step >= 1 && given.last_step >= given.first_step,
      "[trace] steps are counted from 1, and the last one must not be before the first one: first_step=",
      given.first_step, ", last_step=", given.last_step);
  std::unique_lock lock(mutex);
  LOCKSTEP_CHECK_CONTEXT(!is_active, "[trace] a trace of steps ", options.first_step, " to ", options.last_step,
                         " is not complete; wait for its end, or unset LOCKSTEP_TRACE where that asks for it");
  const int64_t done = num_steps(0);
  LOCKSTEP_CHECK_VALUE(given.last_step > done, "[trace] the steps have passed: last_step=", given.last_step,
                       ", steps made by this process=", done, "; choose later ones");
  LOCKSTEP_CHECK_VALUE(last_path != file_in(given.folder, worker.index),
                       "[trace] the file holds the trace before: file=", last_path, "; choose another folder");
  check_folder(given.folder);
  if (thread.joinable()) thread.join();
  static const bool at_exit = std::atexit([] { session().finish(); }) == 0;
  (void)at_exit;
  options = given;
  process = ::getpid();
  is_active = true;
  is_ending = false;
  detail::written_steps.first.store(given.first_step, std::memory_order_relaxed);
  detail::written_steps.last.store(given.last_step, std::memory_order_relaxed);
  detail::activity.fetch_or(detail::kTracing, std::memory_order_relaxed);
  wants_kernels = given.first_step == done + 1;
  has_begun_kernels = records_kernels = false;
  thread = std::thread([this] { serve(); });
  if (wants_kernels) changed.wait_for(lock, kKernelStart, [&] { return has_begun_kernels || !is_active; });
}

void TraceSession::begin_range() {
  std::unique_lock lock(mutex);
  if (!is_active || wants_kernels) return;
  wants_kernels = true;
  changed.notify_all();
  changed.wait_for(lock, kKernelStart, [&] { return has_begun_kernels || !is_active; });
}

void TraceSession::write_kernels() {
  if (!records_kernels) return;
  records_kernels = false;
  std::set<int> rows;
  for (const detail::KernelEvent& kernel : detail::end_kernels()) {
    if (!file) open();
    const int row = row_of(kernel);
    if (rows.insert(row).second) {
      const std::string name = c10::str("GPU ", kernel.device, ", stream ", kernel.stream);
      file->add(metadata("thread_name", worker, row, "\"name\":" + json_quoted(name)));
      file->add(metadata("thread_sort_index", worker, row, c10::str("\"sort_index\":", row)));
    }
    line = "{\"name\":" + json_quoted(kernel.name) + ",\"cat\":\"kernel\",\"ph\":\"X\",\"ts\":";
    append_microseconds(line, kernel.begin + worker.clock_offset);
    line += ",\"dur\":";
    append_microseconds(line, kernel.end - kernel.begin);
    line += c10::str(",\"pid\":", worker.index, ",\"tid\":", row, "}");
    file->add(line);
  }
  if (file && !file->flush()) {
    LOCKSTEP_LOG(Warn) << "kernels could not be written to the trace: " << file->path();
  }
}

void TraceSession::open() {
  file = std::make_unique<TraceFile>(file_in(options.folder, worker.index));
  last_path = file->path();
  file->add(metadata(
      "process_name", worker, 0,
      "\"name\":" + json_quoted(c10::str("worker ", worker.index, " (", host_name(), ", process ", ::getpid(), ")"))));
  file->add(metadata("process_sort_index", worker, 0, c10::str("\"sort_index\":", worker.index)));
}

void TraceSession::drain() {
  for (const auto& lane : detail::all_lanes()) {
    std::vector<TraceEvent> events;
    std::string name;
    int order = 0;
    {
      const std::lock_guard own(lane->mutex);
      events.swap(lane->events);
      // Spans of an earlier trace may end late.
      std::erase_if(events, [&](const TraceEvent& event) {
        return event.step < options.first_step || event.step > options.last_step;
      });
      if (events.empty()) continue;
      if (lane->is_new || !file) {
        name = lane->name.empty() ? "thread " + std::to_string(lane->number) : lane->name;
        order = lane->sort_index;
        lane->is_new = false;
      }
    }
    if (!file) open();
    if (!name.empty()) {
      file->add(metadata("thread_name", worker, lane->number, "\"name\":" + json_quoted(name)));
      file->add(metadata("thread_sort_index", worker, lane->number, c10::str("\"sort_index\":", order)));
    }
    for (const TraceEvent& event : events) {
      set_event_text(event, worker, lane->number, line);
      file->add(line);
    }
  }
  if (file && !file->flush()) {
    LOCKSTEP_LOG(Warn) << "the trace ends here, because the file cannot be written: " << file->path();
    is_ending = true;
  }
  detail::drop_ended_lanes();
}

bool TraceSession::is_over() const { return num_steps(0) >= options.last_step; }

void TraceSession::serve() {
  std::unique_lock lock(mutex);
  std::chrono::steady_clock::time_point limit{};
  bool has_failed = false;
  try {
    while (!is_ending) {
      if (wants_kernels && !has_begun_kernels) {
        records_kernels = detail::begin_kernels();
        has_begun_kernels = true;
        changed.notify_all();
      }
      changed.wait_for(lock, kFlushInterval);
      drain();
      if (!is_over()) continue;
      const auto now = std::chrono::steady_clock::now();
      if (limit == std::chrono::steady_clock::time_point{}) limit = now + kLastSpans;
      int num_open = 0;
      for (const auto& lane : detail::all_lanes()) num_open += lane->num_open.load(std::memory_order_relaxed);
      is_ending = is_ending || num_open == 0 || now >= limit;
    }
    detail::activity.fetch_and(~detail::kTracing, std::memory_order_relaxed);
    drain();
    write_kernels();
  } catch (const std::exception& error) {
    has_failed = true;
    LOCKSTEP_LOG(Warn) << "there is no trace: " << error.what();
    detail::activity.fetch_and(~detail::kTracing, std::memory_order_relaxed);
  }
  if (file) {
    file->close();
  } else if (!has_failed) {
    LOCKSTEP_LOG(Warn) << "there is no trace of steps " << options.first_step << " to " << options.last_step
                       << ": this process has made " << num_steps(0) << " steps";
  }
  file.reset();
  for (const auto& lane : detail::all_lanes()) {
    const std::lock_guard own(lane->mutex);
    lane->events.clear();
    lane->is_new = true;
  }
  is_active = false;
  changed.notify_all();
}

void TraceSession::finish() {
  if (process != ::getpid()) return;
  std::unique_lock lock(mutex);
  if (is_active) {
    is_ending = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !is_active; });
  }
  if (!thread.joinable()) return;
  std::thread ended = std::move(thread);
  lock.unlock();
  ended.join();
}

}  // namespace

void set_trace_worker(const TraceWorker& worker) {
  TraceSession& own = session();
  const std::lock_guard lock(own.mutex);
  if (!own.file) own.worker = worker;
}

TraceOptions parse_trace(const std::string& text) {
  constexpr std::string_view kStart = "steps:";
  const auto check = [&](bool holds) {
    LOCKSTEP_CHECK_VALUE(holds,
                         "[environment] the variable must be steps:FIRST-LAST or steps:FIRST-LAST,FOLDER, as in ",
                         "steps:100-110,traces: LOCKSTEP_TRACE=\"", text, "\"");
  };
  check(text.starts_with(kStart));
  TraceOptions options;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data() + kStart.size(), end, options.first_step);
  check(first.ec == std::errc() && first.ptr != end && *first.ptr == '-');
  const auto last = std::from_chars(first.ptr + 1, end, options.last_step);
  check(last.ec == std::errc() && (last.ptr == end || *last.ptr == ','));
  check(options.first_step >= 1 && options.last_step >= options.first_step);
  if (last.ptr != end) {
    options.folder.assign(last.ptr + 1, end);
    check(!options.folder.empty());
  }
  return options;
}

void start_trace(const TraceOptions& options) { session().start(options); }

bool start_trace_of_environment() {
  const auto text = env::given("LOCKSTEP_TRACE");
  if (!text) return false;
  const TraceOptions options = parse_trace(*text);
  TraceSession& own = session();
  {
    const std::lock_guard lock(own.mutex);
    if (std::exchange(own.is_environment_read, true)) return true;
  }
  own.start(options);
  return true;
}

bool is_tracing() { return (detail::activity.load(std::memory_order_relaxed) & detail::kTracing) != 0; }

void finish_trace() { session().finish(); }

void detail::begin_written_steps() { session().begin_range(); }

}  // namespace lockstep::trace
