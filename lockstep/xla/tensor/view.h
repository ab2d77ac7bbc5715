#pragma once

#include <vector>

#include "lockstep/xla/graph/build.h"

namespace lockstep::xla {

/// A strided view over a flat storage, said in shapes: cut the storage into a block of `shape` (padded where a stride
/// does not divide what is above it), take the box [begin, end) of it, and put its dimensions into the view's order.
/// The same description serves reading and writing.
class StridedBox {
 public:
  /// False where the view's elements overlap other than by expansion: such a view can only be gathered.
  bool describe(int64_t numel, Ints size, Ints stride, int64_t offset);

  /// The view's value, of a storage of any shape.
  Value read(const Value& storage, Ints size, Ints stride) const;
  /// The storage, of its own shape, with the view written.
  Value write(const Value& storage, const Value& view) const;

 private:
  /// A cut: the last dimension has `length` elements, `padded` of them with what it takes to divide it.
  struct Cut {
    int64_t length;
    int64_t padded;
  };
  Value cut(Value storage) const;
  Value uncut(Value block, Ints shape) const;

  std::vector<Cut> cuts_;
  Shape shape_;
  Shape begin_;
  Shape end_;
  /// Dimensions of the view that are neither of size 1 nor expanded, and where each is in the box.
  Shape kept_;
  Shape position_;
  bool is_padded_ = false;
};

/// The value of any strided view, by the address of each element.
Value gather_view(const Value& storage, Ints size, Ints stride, int64_t offset);

}  // namespace lockstep::xla
