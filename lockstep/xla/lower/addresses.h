#pragma once

#include "lockstep/xla/lower/lowering.h"

/// Inside: places of elements, for what is read and written by index.
namespace lockstep::xla {

/// A scalar as one element of one dimension; others as they are.
Value at_least_one_dim(const Value& a);

/// In a contiguous tensor of `shape`: for each element of `index`, of as many dimensions, the place of the element that
/// has the index along `dim` and its own position along the others.
Value addresses_along(const Value& index, int64_t dim, Ints shape);

/// Counted from the end where it is negative.
Value from_end(const Value& index, int64_t size);

/// Dimension `dim` becomes the first; `back` undoes it.
Value to_front(const Value& a, int64_t dim);
Value to_back(const Value& a, int64_t dim);

/// What LibTorch writes as x[i, :, j]: index tensors for some dimensions, which broadcast together.
class Advanced {
 public:
  /// The indices are argument `i`, for `a`.
  Advanced(const Call& call, int i, const Value& a);
  /// Whether the indices are integers.
  static bool covers(const Call& call, int i);

  Value read(const Value& a) const;
  /// `kind` as in `scatter`; `values` broadcast.
  Value write(const char* kind, const Value& a, const Value& values) const;

 private:
  Value rows(const Value& a) const;
  /// Of what is read: where the dimensions of the indices are, in the order of those of the rows.
  std::vector<int64_t> order() const;

  /// Dimensions of the tensor: those with an index, then the others.
  std::vector<int64_t> dims_;
  Shape rows_shape_;
  /// The row of each element.
  Value row_;
  /// Where the dimensions of the indices go.
  size_t position_ = 0;
};

}  // namespace lockstep::xla
