#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace lockstep::data {

/// How many elements a dataset has: a number, no end, or nobody knows before it is read.
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

  /// Returns what `change` makes of a known number; the others stay as they are.
  template <class F>
  Cardinality map(F&& change) const {
    return is_known() ? exactly(change(value_)) : *this;
  }

  /// How many there are where both must have one.
  static Cardinality shorter(Cardinality a, Cardinality b) {
    if (a.is_infinite()) return b;
    if (b.is_infinite()) return a;
    if (a.is_unknown() || b.is_unknown()) return unknown();
    return exactly(std::min(a.value_, b.value_));
  }

  /// How many there are of both, one after the other.
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

}  // namespace lockstep::data
