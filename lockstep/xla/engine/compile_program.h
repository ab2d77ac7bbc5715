#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/xla/pjrt/client.h"

/// Internal: compiling one program, or loading it from LOCKSTEP_XLA_CACHE.
namespace lockstep::xla {

struct ProgramSource {
  const std::string& stablehlo;
  /// `[replica][partition]`.
  std::vector<std::vector<int>> device_ids;
  bool full_precision = true;
  const CompilerOptions& options;
  /// Number of operations, for the log.
  size_t num_operations = 0;
};

/// Returns the program. With LOCKSTEP_XLA_CACHE it is loaded if it was stored by an earlier process with the same
/// plugin, devices and options; otherwise it is compiled and stored. A stored program that cannot be loaded is compiled
/// again. Counts both. A line is logged while a compilation takes more than two seconds. Thread-safe.
Executable compile_program(const Client& client, const ProgramSource& source);

/// Throws ValueError if LOCKSTEP_XLA_CACHE is set and cannot be used.
void check_program_store();

/// Logs a warning when it lives longer than `delay`.
class LOCKSTEP_API SlowCompilationNotice {
 public:
  SlowCompilationNotice(std::string text, std::chrono::milliseconds delay);
  ~SlowCompilationNotice();
  SlowCompilationNotice(const SlowCompilationNotice&) = delete;
  SlowCompilationNotice& operator=(const SlowCompilationNotice&) = delete;

 private:
  struct Timer;
  std::unique_ptr<Timer> timer_;
};

}  // namespace lockstep::xla
