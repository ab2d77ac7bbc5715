#pragma once

#include <functional>

#include "lockstep/base/spread.h"
#include "lockstep/data/codec.h"
#include "lockstep/data/spec.h"

namespace lockstep::data {

/// A function for `map` that works on the leaves of elements, without making a value of each: what parses records makes
/// the rows of tensors this way, which `batch` then copies straight out of the file. Results are elements of a T.
template <class T>
struct ElementMap {
  std::function<void(Element& in, Element& out)> fn;
  ElementSpec result;
};

}  // namespace lockstep::data

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
