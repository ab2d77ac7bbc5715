#include "lockstep/base/log.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"

namespace lockstep::log {
namespace {

constexpr std::array<std::string_view, 4> kNames{"error", "warn", "info", "debug"};
constexpr int kOff = -1;

int level_of_environment() {
  const std::string word = env::text("LOCKSTEP_LOG");
  if (word == "off") return kOff;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (word == kNames[i]) return static_cast<int>(i);
  }
  std::fprintf(stderr, "lockstep warn] LOCKSTEP_LOG must be error, warn, info, debug or off: LOCKSTEP_LOG=\"%s\"\n",
               word.c_str());
  return static_cast<int>(Level::Warn);
}

std::atomic<int>& last_level() {
  static std::atomic<int> level{level_of_environment()};
  return level;
}

// Never destroyed: threads may log while the program ends.
struct Output {
  std::mutex mutex;
  Sink sink;
};

Output& output() {
  static auto* output = new Output;
  return *output;
}

std::string clock_time() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t whole = std::chrono::system_clock::to_time_t(now);
  const auto fraction = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  localtime_r(&whole, &parts);
  std::array<char, 32> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%03d", static_cast<int>(fraction));
  return text.data();
}

}  // namespace

bool enabled(Level level) { return static_cast<int>(level) <= last_level().load(std::memory_order_relaxed); }

void set_level(Level level) { last_level() = static_cast<int>(level); }

void set_sink(Sink sink) {
  const std::lock_guard lock(output().mutex);
  output().sink = std::move(sink);
}

Event::Event(Level level, std::string_view file, int line) : level_(level) {
  text_ << "lockstep " << kNames[static_cast<size_t>(level)] << ' ' << clock_time() << ' '
        << file.substr(file.rfind('/') + 1) << ':' << line << "] ";
}

Event::~Event() {
  const std::string line = text_.str();
  const std::lock_guard lock(output().mutex);
  if (output().sink) {
    output().sink(level_, line);
  } else {
    progress::print_line(line);
  }
}

}  // namespace lockstep::log
