#pragma once

#include <unordered_map>

#include "lockstep/xla/graph/node.h"

namespace lockstep::xla {

/// A strided view of a flat storage.
struct ViewShape {
  Ints size;
  Ints stride;
  int64_t offset = 0;
};

/// The positions of slices and selections that led to the views of one storage, such as `i` of `x[i]`. Their units are
/// elements of the storage.
class ViewPositions {
 public:
  /// Notes a view that was made of another one. Returns false if the same view has been made before in another way: its
  /// positions are not known then.
  bool note(const ViewShape& of, const ViewShape& view);
  /// Positions that are not known are left out.
  Positions of(const ViewShape& view) const;
  void clear() { views_.clear(); }
  size_t size() const { return views_.size(); }

 private:
  struct Known {
    Shape size;
    Shape stride;
    Positions positions;
  };
  Known* find(const ViewShape& view);

  /// By offset.
  std::unordered_multimap<int64_t, Known> views_;
};

}  // namespace lockstep::xla
