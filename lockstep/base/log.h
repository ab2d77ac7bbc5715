#pragma once

#include <functional>
#include <sstream>
#include <string_view>

#include "lockstep/api.h"

/// The log: one line on standard error for each event, nothing in a clean run.
///
///     LOCKSTEP_LOG(Warn) << "oneDNN is on: convolutions may be slow";
///
/// prints `lockstep warn 12:30:01.123 thread_count.cpp:17] oneDNN is on: convolutions may be slow`. The environment
/// variable LOCKSTEP_LOG sets the level at the start. Thread-safe; lines do not mix.
namespace lockstep::log {

enum class Level {
  /// A failure that is reported in no other way.
  Error,
  /// The program continues in a degraded way.
  Warn,
  /// Decisions and their reasons.
  Info,
  /// Details of each step.
  Debug,
};

/// Returns whether events of this level are printed.
LOCKSTEP_API bool enabled(Level level);

/// Sets the last level that is printed.
LOCKSTEP_API void set_level(Level level);

/// Replaces standard error: the function gets each line, without the newline. An empty function restores it.
using Sink = std::function<void(Level, std::string_view line)>;
LOCKSTEP_API void set_sink(Sink sink);

/// Collects one event and prints it when it goes out of scope. Made by LOCKSTEP_LOG.
class LOCKSTEP_API Event {
 public:
  Event(Level level, std::string_view file, int line);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  std::ostream& stream() { return text_; }

 private:
  Level level_;
  std::ostringstream text_;
};

}  // namespace lockstep::log

/// Starts an event of a level (Error, Warn, Info, Debug); what follows `<<` is evaluated only when it is printed.
#define LOCKSTEP_LOG(level)                                       \
  if (!::lockstep::log::enabled(::lockstep::log::Level::level)) { \
  } else                                                          \
    ::lockstep::log::Event(::lockstep::log::Level::level, __FILE__, __LINE__).stream()
