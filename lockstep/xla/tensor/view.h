#pragma once

#include <vector>

#include "lockstep/xla/graph/ops/build.h"

namespace lockstep::xla {

/// A strided view of a flat storage, expressed by shapes: reshape the storage to a block of `shape` (padded where a
/// stride does not divide the next larger one), slice the box [begin, end), and transpose to the view's order. The
/// description serves reading and writing.
class StridedBox {
 public:
  /// Returns false if elements of the view overlap other than by expansion; such a view can only be gathered.
  /// `positions` are those that led to the view, with units in elements of the storage.
  bool describe(int64_t numel, Ints size, Ints stride, int64_t offset, const Positions& positions);

  /// The view's value, of a storage of any shape.
  Value read(const Value& storage, Ints size, Ints stride) const;
  /// The storage, of its own shape, with the view written.
  Value write(const Value& storage, const Value& view) const;

 private:
  /// One split of the last dimension: it has `length` elements, and `padded` ones with the padding that makes it
  /// divide.
  struct Cut {
    int64_t length;
    int64_t padded;
  };
  void place(const Position& position, Ints strides);
  Value cut(Value storage) const;
  Value uncut(Value block, Ints shape) const;

  std::vector<Cut> cuts_;
  Shape shape_;
  Shape begin_;
  Shape end_;
  /// Dimensions of the view that are neither of size 1 nor expanded, and their positions in the box.
  Shape kept_;
  Shape position_;
  bool is_padded_ = false;
  /// Positions that move the box along one of its dimensions, for all of their values.
  Positions positions_;
};

/// The value of any strided view, gathered by the address of each element.
Value gather_view(const Value& storage, Ints size, Ints stride, int64_t offset, const Positions& positions);

}  // namespace lockstep::xla
