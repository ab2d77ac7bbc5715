#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/api.h"

/// What the engine has done since the process began, for tests, benchmarks and people who wonder where time goes.
namespace lockstep::xla {

struct Counters {
  /// Calls of LibTorch's functions that were traced.
  int64_t traced = 0;
  /// Calls that have no emitter and ran on the CPU, and which.
  int64_t fallbacks = 0;
  std::map<std::string, int64_t> fallback_functions;
  /// Times that pending work was executed because somebody wanted a value, not because a run ended.
  int64_t cuts = 0;
  int64_t executions = 0;
  /// Steps that were replayed without running their function.
  int64_t replays = 0;
  int64_t compiles = 0;
  /// Compilations of what had been compiled before for other sizes, or with other constants.
  int64_t recompiles = 0;
  double compile_seconds = 0;
  double emit_seconds = 0;
  /// Host time of collecting, looking up and launching programs, without compiling.
  double launch_seconds = 0;
  int64_t uploads = 0;
};

LOCKSTEP_API Counters counters();

/// Inside: where the engine counts. `change` is called under a lock.
template <class F>
void count(F&& change);

namespace detail {
struct CountersLock {
  CountersLock();
  ~CountersLock();
  CountersLock(const CountersLock&) = delete;
  CountersLock& operator=(const CountersLock&) = delete;
  Counters& counters;
};
/// Traced calls are counted without the lock.
LOCKSTEP_API void count_traced();
}  // namespace detail

template <class F>
void count(F&& change) {
  const detail::CountersLock lock;
  change(lock.counters);
}

}  // namespace lockstep::xla
