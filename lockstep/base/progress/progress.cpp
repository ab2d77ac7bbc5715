#include "lockstep/base/progress/progress.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <poll.h>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "lockstep/base/progress/error_output.h"
#include "lockstep/base/progress/progress_line.h"

namespace lockstep::progress {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDrawEvery{100};
constexpr std::chrono::seconds kLong{1};
constexpr std::chrono::seconds kRateWindow{5};
constexpr std::chrono::milliseconds kRateSample{500};
/// How long the end of the last Display, and that of the process, wait for what nobody has read.
constexpr std::chrono::seconds kEndOfDisplay{1};
constexpr std::chrono::seconds kEndOfProcess{5};
constexpr std::string_view kClear = "\r\033[K";
constexpr int kEndSignals[] = {SIGINT, SIGTERM};

/// Whether the bar is on the screen, for signal handlers.
std::atomic<bool> is_drawn{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler reads it");
/// Whether a signal ends the process: nothing is drawn any more.
std::atomic<bool> is_ending{false};
std::atomic<int> num_displays{0};

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // Nobody is left to be told.
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string_view variable_text(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool locale_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(variable_text(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int columns = std::atoi(std::string(variable_text("COLUMNS")).c_str());
  return columns > 0 ? columns : 80;
}

/// Whether a bar that has become wider than the terminal is shown in several rows. Others cut it off.
bool wraps_old_rows() {
  const std::string_view term = variable_text("TERM");
  const bool is_screen = term.starts_with("screen") && variable_text("TMUX").empty();
  return variable_text("XTERM_VERSION").empty() && term != "linux" && !is_screen;
}

/// A job in the background of a shell must not draw over what the shell's user types.
bool is_in_background() {
  const pid_t foreground = ::tcgetpgrp(STDERR_FILENO);
  return foreground > 0 && foreground != ::getpgrp();
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// The rate of the last seconds.
class Rate {
 public:
  Rate(Clock::time_point now, int64_t done) : samples_{{now, done}} {}

  double at(Clock::time_point now, int64_t done) {
    while (samples_.size() > 1 && samples_[1].time <= now - kRateWindow) samples_.pop_front();
    const Sample first = samples_.front();
    if (now - samples_.back().time >= kRateSample) samples_.push_back({now, done});
    const double seconds = seconds_between(first.time, now);
    return seconds > 0 ? static_cast<double>(done - first.done) / seconds : 0;
  }

 private:
  struct Sample {
    Clock::time_point time;
    int64_t done;
  };
  std::deque<Sample> samples_;
};

struct ShownTask final : Task::Shared {
  ShownTask(std::string what, TaskOptions given)
      : text(std::move(what)),
        options(std::move(given)),
        begin(Clock::now()),
        next_line(begin + options.line_every),
        rate(begin, options.done) {
    done = options.done;
    total = options.total;
  }

  bool is_due(Clock::time_point now) const { return options.kind == Kind::Loop || now - begin >= kLong; }

  LineParts parts(Clock::time_point now) {
    LineParts parts{.text = text, .unit = options.unit, .done = done, .total = total, .value_name = options.value_name};
    parts.rate = rate.at(now, parts.done);
    parts.seconds = seconds_between(begin, now);
    if (has_value) parts.value = value;
    return parts;
  }

  void ask_for_value(Clock::time_point now) {
    if (options.value_name == nullptr || now < next_value) return;
    next_value = now + options.value_every;
    wants_value = true;
  }

  /// "saving step 120 34 %"
  std::string note() const {
    const int64_t all = total;
    return all > 0 ? text + " " + std::to_string(100 * std::min<int64_t>(done, all) / all) + " %" : text;
  }

  std::string text;
  TaskOptions options;
  Clock::time_point begin;
  Clock::time_point next_value{};
  /// Of a loop, where there is no terminal.
  Clock::time_point next_line;
  Rate rate;
  bool is_announced = false;
};

void end_by_signal(int signal) {
  struct sigaction current {};
  ::sigaction(signal, nullptr, &current);
  // Handlers that were installed later call this one, and may want to go on.
  if ((current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != end_by_signal) return;
  is_ending = true;
  clear_in_handler();
  current.sa_handler = SIG_DFL;
  ::sigaction(signal, &current, nullptr);
  ::raise(signal);
}

void set_signals(bool is_on) {
  for (const int signal : kEndSignals) {
    struct sigaction current {};
    ::sigaction(signal, nullptr, &current);
    const bool has_siginfo = (current.sa_flags & SA_SIGINFO) != 0;
    if (has_siginfo || current.sa_handler != (is_on ? SIG_DFL : end_by_signal)) continue;
    struct sigaction wanted {};
    wanted.sa_handler = is_on ? end_by_signal : SIG_DFL;
    sigemptyset(&wanted.sa_mask);
    ::sigaction(signal, &wanted, nullptr);
  }
}

/// The last line of the terminal, or the lines elsewhere. Never destroyed: threads may log while the program ends.
class Screen {
 public:
  static Screen& instance() {
    static auto* screen = new Screen;
    return *screen;
  }

  void turn_on() {
    const std::lock_guard lock(mutex_);
    if (num_displays++ > 0) return;
    output_.open();
    is_terminal_ = ::isatty(STDERR_FILENO) == 1 && variable_text("TERM") != "dumb";
    style_ = {.utf8 = locale_is_utf8(), .colour = variable_text("NO_COLOR").empty()};
    wraps_ = wraps_old_rows();
    if (is_terminal_) set_signals(true);
    thread_ = std::thread([this, generation = ++generation_] { draw_until_off(generation); });
  }

  void turn_off() {
    std::thread thread;
    {
      const std::lock_guard lock(mutex_);
      if (--num_displays > 0) return;
      ++generation_;
      thread = std::move(thread_);
      if (is_terminal_) set_signals(false);
      output_.write(cleared());
      changed_.notify_all();
      output_.flush_for(kEndOfDisplay);
      if (output_.is_empty()) {
        output_.close();
      } else {
        static const bool at_exit = std::atexit([] { instance().finish(); }) == 0;
        (void)at_exit;
      }
    }
    thread.join();
  }

  void add(std::shared_ptr<ShownTask> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }

  void remove(const Task::Shared* task) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& each) { return each.get() == task; });
    const std::shared_ptr<ShownTask> ended = *found;
    tasks_.erase(found);
    if (ended->is_announced && num_displays > 0) output_.write_line(end_line(*ended));
    output_.write(cleared());
  }

  void print(std::string_view line) {
    const std::lock_guard lock(mutex_);
    if (num_displays == 0 && output_.is_empty()) {
      write_all(std::string(line) + "\n");
    } else {
      output_.write_line(cleared() + std::string(line));
      if (num_displays == 0) output_.flush_for(kEndOfDisplay);
    }
  }

 private:
  /// At the end of the process.
  void finish() {
    const std::lock_guard lock(mutex_);
    output_.flush_for(kEndOfProcess);
  }

  void draw_until_off(uint64_t generation) {
    std::unique_lock lock(mutex_);
    while (generation_ == generation) {
      output_.flush();
      if (is_terminal_) {
        draw(Clock::now());
      } else {
        announce(Clock::now());
      }
      changed_.wait_for(lock, kDrawEvery, [&] { return generation_ != generation; });
    }
  }

  /// What clears the bar where there is one. In the background the last line is the shell's.
  std::string cleared() const {
    if (!is_drawn.exchange(false) || is_in_background()) return "";
    return to_first_row() + std::string(kClear);
  }

  /// What goes to the beginning of the bar, and clears the rows below where it has several.
  std::string to_first_row() const {
    const int rows_above = wraps_ ? (drawn_columns_ - 1) / terminal_width() : 0;
    return rows_above > 0 ? "\r\033[" + std::to_string(rows_above) + "A\033[J" : "";
  }

  void announce(Clock::time_point now) {
    for (const auto& task : tasks_) {
      if (task->options.kind == Kind::Loop) {
        announce_loop(*task, now);
      } else if (!task->is_announced && task->is_due(now)) {
        task->is_announced = true;
        output_.write_line(printable(task->text, true) + " ...");
      }
    }
  }

  void announce_loop(ShownTask& task, Clock::time_point now) {
    // A value takes a step.
    const auto ahead = std::max(task.options.value_every, task.options.line_every / 10);
    if (!task.has_value || now + ahead >= task.next_line) task.ask_for_value(now);
    if (now < task.next_line) return;
    task.next_line = now + task.options.line_every;
    output_.write_line(plain_line_of(task.parts(now)));
  }

  static std::string end_line(const ShownTask& task) {
    std::string line = printable(task.text, true) + ": ";
    if (!task.options.unit.empty()) line += count_text(task.done - task.options.done, 0, task.options.unit) + ", ";
    return line + elapsed_text(seconds_between(task.begin, Clock::now()));
  }

  void draw(Clock::time_point now) {
    if (is_in_background()) is_drawn = false;
    if (is_in_background() || is_ending || !output_.is_ready()) return;
    const ShownTask* loop = nullptr;
    ShownTask* front = nullptr;
    std::string notes;
    for (const auto& task : tasks_) {
      task->ask_for_value(now);
      if (!task->is_due(now)) continue;
      if (task->options.kind == Kind::Background) {
        notes += (notes.empty() ? "" : ", ") + task->note();
        continue;
      }
      if (task->options.kind == Kind::Loop && loop == nullptr) loop = task.get();
      front = task.get();
    }
    if (front == nullptr && notes.empty()) {
      output_.write(cleared());
      return;
    }
    LineParts parts;
    if (front != nullptr) {
      parts = front->parts(now);
      parts.notes = notes;
      if (loop != nullptr && loop != front) parts.context = loop->text;
    } else {
      parts = background_parts(now);
    }
    style_.width = terminal_width();
    const std::string begin = is_drawn ? to_first_row() : "";
    LineStyle plain = style_;
    plain.colour = false;
    drawn_columns_ = columns_of(line_of(parts, plain));
    is_drawn = true;
    output_.write(begin + "\r" + line_of(parts, style_) + "\033[K");
  }

  /// The newest background task, where there is no other.
  LineParts background_parts(Clock::time_point now) const {
    for (auto task = tasks_.rbegin(); task != tasks_.rend(); ++task) {
      if ((*task)->is_due(now)) return (*task)->parts(now);
    }
    return {};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  /// Of the thread that draws; others end.
  uint64_t generation_ = 0;
  bool is_terminal_ = false;
  bool wraps_ = true;
  LineStyle style_;
  /// Of the bar, where it is drawn.
  int drawn_columns_ = 0;
  ErrorOutput output_;
  std::vector<std::shared_ptr<ShownTask>> tasks_;
};

}  // namespace

Display::Display(bool is_on) : is_on_(is_on) {
  if (is_on_) Screen::instance().turn_on();
}

Display::~Display() {
  if (is_on_) Screen::instance().turn_off();
}

bool Display::is_on() { return num_displays.load(std::memory_order_relaxed) > 0; }

Task::Task(std::string text, TaskOptions options) {
  if (!Display::is_on()) return;
  auto task = std::make_shared<ShownTask>(std::move(text), std::move(options));
  state_ = task;
  Screen::instance().add(std::move(task));
}

Task::~Task() {
  if (state_) Screen::instance().remove(state_.get());
}

void print_line(std::string_view line) { Screen::instance().print(line); }

void clear_in_handler() {
  if (!is_drawn.exchange(false)) return;
  const int error = errno;
  pollfd output{STDERR_FILENO, POLLOUT, 0};
  if (!is_in_background() && ::poll(&output, 1, 0) > 0) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kClear.data(), kClear.size());
  }
  errno = error;
}

}  // namespace lockstep::progress
