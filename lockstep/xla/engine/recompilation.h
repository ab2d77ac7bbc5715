#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/xla/graph/trace.h"
#include "lockstep/xla/tensor/place.h"

namespace lockstep::xla {

/// Notices when a step is compiled again, says why, and warns when it goes on: a step that compiles again and again
/// spends its time in the compiler. Used under the cache's lock.
class Recompilations {
 public:
  /// A number that was compiled in has changed.
  void number_changed(const Trace& trace, const Node& number);
  /// A trace is compiled that is not known; says which argument's size differs where the operations are.
  void sizes_changed(const Trace& trace, at::ArrayRef<Place*> places);

 private:
  struct Known {
    std::vector<Shape> arguments;
    int times = 0;
  };
  void report(Known& known, const std::string& reason);

  std::unordered_map<uint64_t, Known> known_;
};

}  // namespace lockstep::xla
