#pragma once

#include <cstdint>

#include "lockstep/data/function.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"

/// Inside: what `map` with one thread and with several have in common.
namespace lockstep::data::detail {

/// A user's function with the random numbers that belong to each element: what it draws from LibTorch's default
/// generators depends on the seed, the epoch and the element's number alone, whichever thread calls it.
///
/// Each thread has a copy of its own, so a function may keep what it needs from call to call.
class MapFunction {
 public:
  MapFunction(ElementFunction fn, uint64_t seed);
  /// Makes the result for element number `ordinal`.
  void operator()(int64_t ordinal, Element& in, Element& out);

 private:
  ElementFunction fn_;
  uint64_t seed_;
};

/// Calls the function on `options.num_threads` threads. Results come in the order of the input unless that is waived.
std::unique_ptr<NodeIterator> make_parallel_map_iterator(std::unique_ptr<NodeIterator> input, MapFunction fn,
                                                         const MapOptions& options);

}  // namespace lockstep::data::detail
