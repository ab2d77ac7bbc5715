#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "lockstep/api.h"
#include "lockstep/data/element.h"

/// What is known of a dataset's elements before any is read.
namespace lockstep::data {

/// The sizes of a tensor as far as they are known: a dimension may be unknown, and so may be their number.
class LOCKSTEP_API PartialShape {
 public:
  using Dim = std::optional<int64_t>;

  /// Unknown rank.
  PartialShape() = default;
  PartialShape(std::vector<Dim> dims) : dims_(std::move(dims)) {}  // NOLINT
  PartialShape(std::initializer_list<Dim> dims) : dims_(std::vector<Dim>(dims)) {}
  static PartialShape of(at::IntArrayRef sizes) { return std::vector<Dim>(sizes.begin(), sizes.end()); }

  bool has_rank() const { return dims_.has_value(); }
  int64_t rank() const { return static_cast<int64_t>(dims_->size()); }
  const std::vector<Dim>& dims() const { return *dims_; }
  /// Whether every dimension is known.
  bool is_static() const;
  /// The first dimension; unknown where it, or the rank, is.
  Dim leading() const { return has_rank() && rank() > 0 ? dims().front() : Dim(); }

  /// Returns the shape with one more dimension in front.
  PartialShape with_leading(Dim dim) const;
  /// Returns the shape without its first dimension.
  PartialShape without_leading() const;
  /// Returns what two shapes have in common.
  PartialShape meet(const PartialShape& other) const;

  friend bool operator==(const PartialShape&, const PartialShape&) = default;

 private:
  std::optional<std::vector<Dim>> dims_;
};

/// Prints "(None, 28, 28)", or "<unknown>".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const PartialShape& shape);

/// What is known of one leaf.
struct LOCKSTEP_API LeafSpec {
  enum class Kind {
    /// A tensor, or a number, which is a tensor of no dimensions.
    Tensor,
    /// Bytes or a text.
    Bytes,
    /// A batch of leaves that no tensor can hold.
    List,
    /// Any other type.
    Other,
  };

  Kind kind = Kind::Tensor;
  std::optional<at::ScalarType> dtype;
  /// For a list its one known dimension is its length.
  PartialShape shape;

  friend bool operator==(const LeafSpec&, const LeafSpec&) = default;
};

/// Prints "TensorSpec(shape=(None, 784), dtype=uint8)".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const LeafSpec& spec);

/// What is known of an element: its leaves, depth first, and the keys and lengths of its maps and vectors.
struct LOCKSTEP_API ElementSpec {
  /// Nothing where not even the number of leaves is known.
  std::optional<std::vector<LeafSpec>> leaves;
  std::shared_ptr<const Layout> layout;

  /// Describes an element that was seen.
  static ElementSpec of(const Element& element);
  /// Returns the same with `change` applied to each leaf.
  template <class F>
  ElementSpec map_leaves(F&& change) const {
    ElementSpec result = *this;
    if (result.leaves) {
      for (LeafSpec& leaf : *result.leaves) leaf = change(leaf);
    }
    return result;
  }
  /// What both have in common.
  ElementSpec meet(const ElementSpec& other) const;
  /// The one size that all leaves have in their first dimension, if it is known.
  PartialShape::Dim batch_size() const;

  friend bool operator==(const ElementSpec& a, const ElementSpec& b);
};

/// Prints the leaves in parentheses, or the only one as itself; with their keys where they have some.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const ElementSpec& spec);

}  // namespace lockstep::data
