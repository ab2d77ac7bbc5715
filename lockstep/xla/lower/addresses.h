#pragma once

#include "lockstep/xla/lower/lowering.h"

/// Internal: addresses of elements for reads and writes by index.
namespace lockstep::xla {

/// A scalar gets one dimension of size 1; others are returned unchanged.
Value at_least_one_dim(const Value& a);

/// In a contiguous tensor of `shape`: for each element of `index`, of as many dimensions, the address of the
/// element that has the index along `dim` and its own position along the others.
Value addresses_along(const Value& index, int64_t dim, Ints shape);

/// Negative indices count from the end.
Value from_end(const Value& index, int64_t size);

/// `to_front` moves dimension `dim` to the front; `to_back` undoes it.
Value to_front(const Value& a, int64_t dim);
Value to_back(const Value& a, int64_t dim);

/// What LibTorch writes as x[i, :, j]: index tensors for some dimensions, which broadcast together.
class Advanced {
 public:
  /// The indices are argument `i`, for `a`.
  Advanced(const AtenCall& call, int i, const Value& a);
  /// Whether the indices are integers.
  static bool covers(const AtenCall& call, int i);

  Value read(const Value& a) const;
  /// Combines `values`, which broadcast, with the elements.
  Value write(Combiner combiner, const Value& a, const Value& values) const;

 private:
  Value rows(const Value& a) const;
  /// The permutation from the dimensions of taken rows to those of the result.
  std::vector<int64_t> order() const;

  /// Dimensions of the tensor: those with an index, then the others.
  std::vector<int64_t> dims_;
  Shape rows_shape_;
  /// The row of each element.
  Value row_;
  /// The first dimension of the indices in the result.
  size_t position_ = 0;
};

}  // namespace lockstep::xla
