#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/xla/graph/trace.h"
#include "lockstep/xla/tensor/place.h"

/// Inside: compiled programs, and which trace has which.
namespace lockstep::xla {

/// A compiled trace. What it was compiled with does not change: a number that becomes an argument makes another one.
struct Program {
  Executable executable;
  /// For each number of the trace whether it is an argument, or a constant of the program.
  std::vector<char> number_is_argument;
  std::string stablehlo;
};

/// The program for the traces of all replicas, which are the same but for the values of numbers; compiled where it is
/// not known yet. `places[r]` is where trace r is executed.
///
/// A number is a constant until it differs from the last execution's, or between replicas; from then on it is an
/// argument. Compiling again what is known, for other sizes or because of a number, is reported with its reason.
std::shared_ptr<const Program> find_program(at::ArrayRef<const Trace*> traces, at::ArrayRef<Place*> places);

/// The last program that was executed; null before the first. For tests and benchmarks.
LOCKSTEP_API std::shared_ptr<const Program> last_program();
void set_last_program(std::shared_ptr<const Program> program);

/// How often each kind of collective occurs in a program after partitioning: "all-reduce" and so on.
LOCKSTEP_API std::vector<std::pair<std::string, int>> collectives_of(const Program& program);

}  // namespace lockstep::xla
