#pragma once

#include <functional>
#include <utility>

#include "lockstep/base/unpack_tuple.h"
#include "lockstep/data/element/nest_codec.h"
#include "lockstep/data/element/spec.h"

namespace lockstep::data {

/// A function for `map` that works on type-erased elements. Parsers of records use it to return rows of tensors that
/// point into the file, which `batch` copies directly. Results are elements of type T.
template <class T>
struct ElementMap {
  std::function<void(Element& in, Element& out)> fn;
  ElementSpec result;
};

}  // namespace lockstep::data

/// Internal: type-erased functions of users.
namespace lockstep::data::detail {

using ElementFunction = std::function<void(Element& in, Element& out)>;
using ElementPredicate = std::function<bool(Element&)>;

/// Erases the types of a function of T, or of the parts of T if that is a tuple or a pair. With `read_only` the
/// function does not write to its tensors.
template <class T, class F>
ElementFunction erase_function(F fn, bool read_only = false) {
  if (read_only) {
    return [fn = std::move(fn)](Element& in, Element& out) mutable {
      const BorrowedTensors borrowed(in);
      encode(lockstep::detail::call_unpacked(fn, decode<T>(in)), out);
      borrowed.finish(out);
    };
  }
  return [fn = std::move(fn)](Element& in, Element& out) mutable {
    encode(lockstep::detail::call_unpacked(fn, decode_own<T>(in)), out);
  };
}

}  // namespace lockstep::data::detail
