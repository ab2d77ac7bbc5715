#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "lockstep/api.h"
#include "lockstep/data/element/element.h"

/// What is known of a dataset before any element is read: how many elements, and their structure, dtypes and shapes.
namespace lockstep::data {

/// How many elements a dataset has: a number, infinitely many, or unknown before it is read.
class Cardinality {
 public:
  static Cardinality exactly(int64_t size) { return Cardinality(size); }
  static Cardinality infinite() { return Cardinality(kInfinite); }
  static Cardinality unknown() { return Cardinality(kUnknown); }

  bool is_known() const { return value_ >= 0; }
  bool is_infinite() const { return value_ == kInfinite; }
  bool is_unknown() const { return value_ == kUnknown; }

  /// The number, where it is known.
  std::optional<int64_t> size() const { return is_known() ? std::optional(value_) : std::nullopt; }

  /// The number as TensorFlow writes it: -1 for no end, -2 for unknown.
  int64_t as_int64() const { return value_; }

  /// Applies `change` to a known number; infinite and unknown stay as they are.
  template <class F>
  Cardinality map(F&& change) const {
    return is_known() ? exactly(change(value_)) : *this;
  }

  /// The number of pairs: the smaller of both.
  static Cardinality shorter(Cardinality a, Cardinality b) {
    if (a.is_infinite()) return b;
    if (b.is_infinite()) return a;
    if (a.is_unknown() || b.is_unknown()) return unknown();
    return exactly(std::min(a.value_, b.value_));
  }

  /// The number of elements of both together.
  static Cardinality sum(Cardinality a, Cardinality b) {
    if (a.is_infinite() || b.is_infinite()) return infinite();
    if (a.is_unknown() || b.is_unknown()) return unknown();
    return exactly(a.value_ + b.value_);
  }

  friend bool operator==(Cardinality, Cardinality) = default;

 private:
  static constexpr int64_t kInfinite = -1;
  static constexpr int64_t kUnknown = -2;
  explicit Cardinality(int64_t value) : value_(value) {}
  int64_t value_;
};

/// Prints the number, "infinite" or "unknown".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, Cardinality cardinality);

/// The sizes of a tensor as far as they are known: a dimension may be unknown, and so may the rank.
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
  /// The first dimension; unknown where it or the rank is unknown.
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

  /// Returns the spec of an element.
  static ElementSpec of(const Element& element);
  /// Returns a copy with `change` applied to each leaf.
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

/// Prints the leaves in parentheses, a single leaf without; with keys where there are any.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const ElementSpec& spec);

}  // namespace lockstep::data
