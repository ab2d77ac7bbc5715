#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep {

/// How values of several replicas are reduced to one.
///
/// Converts from its name, in upper or lower case: `strategy.reduce("sum", loss)`.
class LOCKSTEP_API ReduceOp {
 public:
  enum Kind {
    /// v0 + v1 + ..., in one fixed binary tree over the replicas. In `all_reduce` the sum of booleans is their logical
    /// or, as in LibTorch.
    Sum,
    /// The sum divided by the number of replicas; integers become floating point. Booleans have none.
    Mean,
    /// The smallest value of each element.
    Min,
    /// The largest value of each element.
    Max,
    /// v0 · v1 · ..., in the tree of sums. The product of booleans is their logical and.
    Product,
  };

  constexpr ReduceOp(Kind kind) : kind_(kind) {}                    // NOLINT: implicit, as an enumerator
  ReduceOp(std::string_view name);                                  // NOLINT: names convert implicitly
  ReduceOp(const char* name) : ReduceOp(std::string_view(name)) {}  // NOLINT

  constexpr operator Kind() const { return kind_; }  // NOLINT

  /// Returns "SUM", "MEAN", "MIN", "MAX" or "PRODUCT".
  std::string_view name() const;

 private:
  Kind kind_;
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, ReduceOp op);

}  // namespace lockstep
