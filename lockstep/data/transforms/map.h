#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/data/element/function.h"
#include "lockstep/data/function_random.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"

/// Internal: shared by `map` with one thread and with several.
namespace lockstep::data::detail {

/// A user's function with its random numbers. Each thread has a copy of the function, so it may hold state.
class MapFunction {
 public:
  MapFunction(ElementFunction fn, FunctionRandom random) : fn_(std::move(fn)), random_(std::move(random)) {}
  /// Makes the result for element number `ordinal`.
  void operator()(int64_t ordinal, Element& in, Element& out);

 private:
  ElementFunction fn_;
  FunctionRandom random_;
};

/// Calls the function on `options.num_threads` threads. Results have the order of the input if `options.ordered`.
std::unique_ptr<NodeIterator> make_parallel_map_iterator(std::unique_ptr<NodeIterator> input, MapFunction fn,
                                                         const MapOptions& options);

}  // namespace lockstep::data::detail
