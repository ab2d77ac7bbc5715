#pragma once

#include <functional>

#include "lockstep/base/spread.h"
#include "lockstep/data/codec.h"

/// Inside: users' functions with their types erased.
namespace lockstep::data::detail {

using ElementFunction = std::function<void(Element& in, Element& out)>;
using ElementPredicate = std::function<bool(Element&)>;

/// Erases the types of a function of T, or of the parts of T if that is a tuple or a pair.
template <class T, class F>
ElementFunction erase_function(F fn) {
  return [fn = std::move(fn)](Element& in, Element& out) mutable {
    encode(lockstep::detail::call_spread(fn, decode<T>(in)), out);
  };
}

}  // namespace lockstep::data::detail
