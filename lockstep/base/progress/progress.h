#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/api.h"

/// Progress on standard error: a bar in the last line of a terminal, plain lines elsewhere.
///
///     const progress::Display display;
///     progress::Task task("reading", {.unit = "records", .total = 1000});
///     for (int64_t i = 0; i < 1000; ++i) task.set(i);
///
/// Tasks of the library are saving and restoring, evaluating, scans of files and compilations. They are shown while a
/// Display lives; without one nothing is printed. `Trainer::fit` makes one where it is verbose. All functions are
/// thread-safe.
///
/// On a terminal a thread draws the bar ten times a second, as wide as the terminal is at that moment. It has colours
/// unless NO_COLOR is set, and only ASCII characters unless the locale is one of UTF-8. Where standard error is no
/// terminal, or TERM is "dumb", a task that takes more than a second has a line after that second and one at its end,
/// and a loop has one each minute. Nothing waits for a terminal or a pipe that nobody reads: the bar is not drawn, and
/// lines are kept for later, up to 1 MiB.
namespace lockstep::progress {

/// While one lives, tasks are shown. On a terminal, SIGINT and SIGTERM clear the bar before they end the process.
class LOCKSTEP_API Display {
 public:
  /// `is_on` false: shows nothing. Of several workers one should show: `Display display(trainer.is_chief())`.
  explicit Display(bool is_on = true);
  /// The last one clears the bar. Where nobody reads, waits up to a second for what was not written.
  ~Display();
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  /// Whether one is on in this process.
  static bool is_on();

 private:
  bool is_on_;
};

/// How a task is shown.
enum class Kind {
  /// After a second, in place of the tasks that began before it. With a line at its end where there is no terminal.
  Work,
  /// At once: other tasks are shown in front of it while they last. Without a terminal a line each minute.
  Loop,
  /// After a second, in a few words behind the bar of other tasks: the training does not wait for it.
  Background,
};

struct TaskOptions {
  /// What is counted: "steps". Sizes are shown in MB and so on where it is "bytes". Empty: nothing is counted.
  std::string unit = {};
  /// How many there are; 0: not known.
  int64_t total = 0;
  /// How many are done at the beginning. They do not count for the rate.
  int64_t done = 0;
  Kind kind = Kind::Work;
  /// A number that is shown with this name: "loss". A literal.
  const char* value_name = nullptr;
  /// How often `wants_value` asks for it.
  std::chrono::milliseconds value_every{100};
  /// How often a loop has a line where there is no terminal.
  std::chrono::milliseconds line_every{60'000};
};

/// Something that takes time. Other tasks may begin and end while it lives.
class LOCKSTEP_API Task {
 public:
  explicit Task(std::string text, TaskOptions options = {});
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  /// Sets how many are done. Costs one store to memory.
  void set(int64_t done) {
    if (state_) state_->done.store(done, std::memory_order_relaxed);
  }
  void add(int64_t count) {
    if (state_) state_->done.fetch_add(count, std::memory_order_relaxed);
  }
  void set_total(int64_t total) {
    if (state_) state_->total.store(total, std::memory_order_relaxed);
  }
  /// Whether a new value would be shown.
  bool wants_value() const { return state_ && state_->wants_value.load(std::memory_order_relaxed); }
  void set_value(double value) {
    if (!state_) return;
    state_->value.store(value, std::memory_order_relaxed);
    state_->has_value.store(true, std::memory_order_relaxed);
    state_->wants_value.store(false, std::memory_order_relaxed);
  }

  /// Internal.
  struct Shared {
    std::atomic<int64_t> done{0};
    std::atomic<int64_t> total{0};
    std::atomic<double> value{0};
    std::atomic<bool> has_value{false};
    std::atomic<bool> wants_value{false};
  };

 private:
  /// Nothing where no Display was on at the beginning.
  std::shared_ptr<Shared> state_;
};

/// Prints a line on standard error, above the bar where there is one. Lines do not mix. While a Display is on, a line
/// that nobody reads is written later: this call does not wait.
LOCKSTEP_API void print_line(std::string_view line);

/// Internal: clears the bar; allowed in signal handlers.
LOCKSTEP_API void clear_in_handler();

}  // namespace lockstep::progress
