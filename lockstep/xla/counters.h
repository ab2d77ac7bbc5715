#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/api.h"

/// Counters of the XLA engine since the start of the process, for tests, benchmarks and profiling.
namespace lockstep::xla {

struct Counters {
  /// Calls of LibTorch's functions that were traced.
  int64_t traced = 0;
  /// Calls without a lowering, which ran on the CPU, and their functions.
  int64_t fallbacks = 0;
  std::map<std::string, int64_t> fallback_functions;
  /// Executions because a value was read, not because a run ended.
  int64_t cuts = 0;
  int64_t executions = 0;
  /// Executions with arguments that were padded to the size of earlier ones, or to powers of two.
  int64_t padded_executions = 0;
  /// How often a step that is not known has waited for LibTorch's backward threads to release their gradients.
  int64_t backward_waits = 0;
  /// Steps that were replayed without running their function.
  int64_t replays = 0;
  int64_t compiles = 0;
  /// Programs that were loaded from LOCKSTEP_XLA_CACHE in place of being compiled.
  int64_t loaded_programs = 0;
  double load_seconds = 0;
  /// Compilations of a step that had been compiled for other sizes or constants.
  int64_t recompiles = 0;
  /// Programs that were dropped from the cache, because there were too many.
  int64_t forgotten_programs = 0;
  double compile_seconds = 0;
  double emit_seconds = 0;
  /// Host time of uploading arguments and launching programs, without compiling.
  double launch_seconds = 0;
  int64_t uploads = 0;
};

LOCKSTEP_API Counters counters();

/// Internal: changes the counters. `change` is called under a lock.
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
