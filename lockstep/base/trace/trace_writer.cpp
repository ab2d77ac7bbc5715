#include "lockstep/base/trace/trace_writer.h"

#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json_text.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_file.h"
#include "lockstep/base/trace/trace_kernels.h"
#include "lockstep/base/trace/trace_lane.h"
#include "lockstep/base/trace/trace_text.h"
#include "lockstep/base/trace/worker_file.h"

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
/// How long kernels of GPUs may stay in memory.
constexpr std::chrono::seconds kKernelInterval{10};

/// The trace of this process. It is never destroyed: threads may outlive static objects.
struct TraceSession {
  std::mutex mutex;
  std::condition_variable changed;
  TraceWorker worker;
  TraceOptions options;
  /// The file of the last trace, and the name that it was to have.
  std::string last_path;
  std::string last_wanted;
  bool is_active = false;
  bool is_ending = false;
  bool is_environment_read = false;
  /// Whether kernels are to be recorded, and whether this was begun, with or without success.
  bool wants_kernels = false;
  bool has_begun_kernels = false;
  bool records_kernels = false;
  std::chrono::steady_clock::time_point kernels_begin{};
  /// Whether the file does not take events any more.
  bool is_cut = false;
  pid_t process = 0;
  std::unique_ptr<TraceFile> file;
  std::string line;
  std::set<int> kernel_rows;
  std::thread thread;

  void start(const TraceOptions& given);
  void serve();
  void finish();
  /// Moves all events of all threads to the file; with the lock held.
  void drain();
  void open();
  /// The range begins with the next step: waits until kernels are recorded.
  void begin_range();
  void begin_kernels();
  void write_kernels();
  void note_written(bool is_written);
  void log_missing() const;
  bool has_ended(std::chrono::steady_clock::time_point& limit) const;
  void write_until_end(std::unique_lock<std::mutex>& lock);
};

int num_open_spans() {
  int count = 0;
  for (const auto& lane : detail::all_lanes()) count += lane->num_open.load(std::memory_order_relaxed);
  return count;
}

/// The name of a lane, with its mutex held.
std::string name_of(const Lane& lane) {
  return lane.name.empty() ? "thread " + std::to_string(lane.number) : lane.name;
}

TraceSession& session() {
  static auto* const instance = new TraceSession;
  return *instance;
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
  LOCKSTEP_CHECK_VALUE(last_wanted != detail::worker_file_name(given.folder, worker.index),
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
  has_begun_kernels = records_kernels = is_cut = false;
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

void TraceSession::begin_kernels() {
  records_kernels = detail::begin_kernels();
  kernels_begin = std::chrono::steady_clock::now();
}

void TraceSession::write_kernels() {
  if (!records_kernels) return;
  records_kernels = false;
  for (const detail::KernelEvent& kernel : detail::end_kernels()) {
    if (!file) open();
    const int row = detail::row_of(kernel);
    if (kernel_rows.insert(row).second) {
      const std::string name = c10::str("GPU ", kernel.device, ", stream ", kernel.stream);
      file->add(detail::metadata_text("thread_name", worker, row, "\"name\":" + json_quoted(name)));
      file->add(detail::metadata_text("thread_sort_index", worker, row, c10::str("\"sort_index\":", row)));
    }
    detail::set_kernel_text(kernel, worker, line);
    file->add(line);
  }
  if (file) note_written(file->flush());
}

void TraceSession::note_written(bool is_written) {
  if (is_written) return;
  is_ending = true;
  if (std::exchange(is_cut, true)) return;
  LOCKSTEP_LOG(Warn) << "the trace ends here, because the file cannot be written: " << file->path();
}

void TraceSession::open() {
  if (worker.job.empty()) worker.job = new_trace_job();
  last_wanted = detail::worker_file_name(options.folder, worker.index);
  file = detail::make_worker_file(options.folder, worker.index);
  last_path = file->path();
  kernel_rows.clear();
  file->add(detail::process_text(worker));
  file->add(detail::metadata_text("process_sort_index", worker, 0, c10::str("\"sort_index\":", worker.index)));
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
        name = name_of(*lane);
        order = lane->sort_index;
        lane->is_new = false;
      }
    }
    if (!file) open();
    if (!name.empty()) {
      file->add(detail::metadata_text("thread_name", worker, lane->number, "\"name\":" + json_quoted(name)));
      file->add(detail::metadata_text("thread_sort_index", worker, lane->number, c10::str("\"sort_index\":", order)));
    }
    for (const TraceEvent& event : events) {
      detail::set_event_text(event, worker, lane->number, line);
      file->add(line);
    }
  }
  if (file) note_written(file->flush());
  detail::drop_ended_lanes();
}

void TraceSession::log_missing() const {
  std::string missing;
  for (const auto& lane : detail::all_lanes()) {
    const int num_open = lane->num_open.load(std::memory_order_relaxed);
    if (num_open == 0) continue;
    const std::lock_guard own(lane->mutex);
    missing += c10::str(missing.empty() ? "" : ", ", num_open, " of ", name_of(*lane));
  }
  if (missing.empty()) return;
  LOCKSTEP_LOG(Warn) << "the trace ends " << kLastSpans.count() << " s after step " << options.last_step
                     << ", without the spans that are open: " << missing;
}

/// Waits for all replicas while functions run, and then for open spans. Returns whether the last step is over.
bool TraceSession::has_ended(std::chrono::steady_clock::time_point& limit) const {
  if (num_steps(0) < options.last_step) return false;
  const bool all_stepped = detail::replicas_before(options.last_step).empty();
  if (!all_stepped && detail::num_running_functions() > 0) {
    limit = {};
    return false;
  }
  if (all_stepped && num_open_spans() == 0) return true;
  const auto now = std::chrono::steady_clock::now();
  if (limit == std::chrono::steady_clock::time_point{}) limit = now + kLastSpans;
  if (now < limit) return false;
  log_missing();
  return true;
}

void TraceSession::write_until_end(std::unique_lock<std::mutex>& lock) {
  std::chrono::steady_clock::time_point limit{};
  while (!is_ending) {
    if (wants_kernels && !has_begun_kernels) {
      begin_kernels();
      has_begun_kernels = true;
      changed.notify_all();
    }
    changed.wait_for(lock, kFlushInterval);
    drain();
    if (records_kernels && std::chrono::steady_clock::now() - kernels_begin >= kKernelInterval) {
      write_kernels();
      begin_kernels();
    }
    is_ending = is_ending || has_ended(limit);
  }
}

void TraceSession::serve() {
  std::unique_lock lock(mutex);
  bool has_failed = false;
  try {
    write_until_end(lock);
    detail::activity.fetch_and(~detail::kTracing, std::memory_order_relaxed);
    drain();
    write_kernels();
  } catch (const std::exception& error) {
    has_failed = true;
    LOCKSTEP_LOG(Warn) << "there is no trace: " << error.what();
    detail::activity.fetch_and(~detail::kTracing, std::memory_order_relaxed);
  }
  if (file) {
    note_written(file->close());
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

std::string new_trace_job() {
  std::random_device random;
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
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
