#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>

#include "lockstep/data/leaf.h"

namespace lockstep::data {

/// What the type of an element does not say: the lengths of its vectors, whether its optionals are set (1 or 0), and
/// the keys of its maps, each in the order in which they are met.
struct Layout {
  std::vector<int64_t> sizes;
  std::vector<std::string> keys;

  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Inside: one element of a dataset with its type erased: the leaves, depth first. `Codec<T>` (codec.h) makes it from a
/// T and a T from it.
struct Element {
  c10::SmallVector<Leaf, 2> leaves;
  /// Null for types whose structure is fixed.
  std::shared_ptr<const Layout> layout;

  /// Makes it empty without giving back memory.
  void clear() {
    leaves.clear();
    layout.reset();
  }
};

namespace detail {

/// Whether two elements have the same lengths and keys.
inline bool same_layout(const Element& a, const Element& b) {
  return a.layout == b.layout || (a.layout && b.layout && *a.layout == *b.layout);
}

}  // namespace detail
}  // namespace lockstep::data
