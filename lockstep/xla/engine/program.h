#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/xla/graph/trace.h"
#include "lockstep/xla/pjrt/executable.h"
#include "lockstep/xla/tensor/xla_device.h"

/// Internal: the cache of compiled programs. Their texts are not kept.
namespace lockstep::xla {

/// A compiled trace. Immutable: when a number becomes an argument, another program is compiled.
struct Program {
  Executable executable;
  /// For each number of the trace whether it is an argument of the program; the others are constants.
  std::vector<char> number_is_argument;
  /// Its entry in the cache: the key, its hash, and the values of the numbers that are constants.
  uint64_t hash = 0;
  std::shared_ptr<const std::vector<uint64_t>> key;
  std::vector<uint64_t> constants;
  /// Whether it has been executed without an error.
  mutable std::atomic<bool> has_succeeded{false};
};

/// Returns the program for the traces of all replicas, which are equal except for the values of numbers; compiles it if
/// it is not in the cache. Trace r is executed on `devices[r]`, with the compiler options of the run of the devices.
///
/// A number is a constant until its value differs from the last execution or between replicas; then it is an argument,
/// also in programs for other sizes. A recompilation for other sizes, or because of a number, is logged with its
/// reason. Different programs are compiled at the same time if several threads need them. LOCKSTEP_XLA_PROGRAMS limits
/// the cache.
std::shared_ptr<const Program> find_program(at::ArrayRef<const Trace*> traces, at::ArrayRef<XlaDevice*> devices);

/// Puts a program that somebody holds back into the cache, if it was forgotten, and counts as a use of it.
void keep_program(const std::shared_ptr<const Program>& program);

/// Throws ValueError if LOCKSTEP_XLA_PROGRAMS is no number above 0.
void check_program_limit();

/// Whether there is a program for a trace of all replicas, for any values of its numbers.
bool has_program(const Trace& trace, at::ArrayRef<XlaDevice*> devices);

/// Whether there may be a program for a trace of all replicas: it has the hash of one. Cheap.
bool may_have_program(const Trace& trace, at::ArrayRef<XlaDevice*> devices);

/// The last program that was executed; null before the first. For tests and benchmarks.
LOCKSTEP_API std::shared_ptr<const Program> last_program();
void set_last_program(std::shared_ptr<const Program> program);

/// Counts of each collective ("all-reduce", ...) in a program after partitioning.
LOCKSTEP_API std::vector<std::pair<std::string, int>> collectives_of(const Program& program);

}  // namespace lockstep::xla
