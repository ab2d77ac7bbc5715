#pragma once

#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/xla/graph/trace.h"
#include "lockstep/xla/tensor/xla_device.h"

namespace lockstep::xla {

/// Detects that a step is compiled again and logs the reason; repeated recompilation of one step is a warning. Not
/// thread-safe: used under the cache's lock.
class Recompilations {
 public:
  /// A number that was a constant of a program has changed.
  void number_changed(const Trace& trace, const Node& number);
  /// A new trace is compiled. Reports the first argument, or else the first value, whose size differs from the last
  /// trace of the same operations.
  void sizes_changed(const Trace& trace, at::ArrayRef<XlaDevice*> devices);

 private:
  struct Known {
    std::vector<Shape> arguments;
    std::vector<uint64_t> node_sizes;
    int times = 0;
  };
  void report(Known& known, const std::string& reason);
  /// For traces of other operations: runs that have mostly called the same functions are taken for one step with
  /// branches or loops. If eight runs, or every second of sixteen, have compiled new programs of it, this is a warning,
  /// once. The programs of one run count once: each read of a value ends one.
  void operations_changed(at::ArrayRef<XlaDevice*> devices);

  /// Programs of runs on the same devices that have called similar functions.
  struct Similar {
    uint64_t devices = 0;
    std::vector<const char*> functions;
    /// The last run that was compiled, and the number of such runs up to it without a gap.
    uint64_t run = 0;
    int num_runs = 1;
    bool is_reported = false;
  };
  static void count_run(Similar& step, uint64_t run, const std::vector<const char*>& functions, size_t first_other);

  std::unordered_map<uint64_t, Known> known_;
  /// The last ones first.
  std::list<Similar> similar_;
};

}  // namespace lockstep::xla
