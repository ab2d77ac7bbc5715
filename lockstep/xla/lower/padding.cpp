#include <algorithm>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// The part of `a` that begins at `begin` along a dimension.
Value piece(const Value& a, int64_t dim, int64_t begin, int64_t length) {
  Shape from(a->shape.size(), 0), to = a->shape;
  from[dim] = begin;
  to[dim] = begin + length;
  return slice(a, from, to);
}

/// Zeros on both sides of a dimension, so that it has `length` elements.
Value placed(const Value& a, int64_t dim, int64_t begin, int64_t length) {
  Shape low(a->shape.size(), 0), high = low;
  low[dim] = begin;
  high[dim] = length - begin - a->shape[dim];
  return pad(a, 0, low, high);
}

struct Reflection {
  static Value low(const Value& a, int64_t dim, int64_t count) { return reverse(piece(a, dim, 1, count), {dim}); }
  static Value high(const Value& a, int64_t dim, int64_t count) {
    return reverse(piece(a, dim, a->shape[dim] - 1 - count, count), {dim});
  }
  /// The elements that the gradients of the padding belong to.
  static Value low_gradient(const Value& edge, int64_t dim, int64_t length) {
    return placed(reverse(edge, {dim}), dim, 1, length);
  }
  static Value high_gradient(const Value& edge, int64_t dim, int64_t length) {
    return placed(reverse(edge, {dim}), dim, length - 1 - edge->shape[dim], length);
  }
};

struct Replication {
  static Value repeated(const Value& edge, int64_t dim, int64_t count) {
    Shape shape = edge->shape;
    shape[dim] = count;
    return broadcast(edge, shape);
  }
  static Value low(const Value& a, int64_t dim, int64_t count) { return repeated(piece(a, dim, 0, 1), dim, count); }
  static Value high(const Value& a, int64_t dim, int64_t count) {
    return repeated(piece(a, dim, a->shape[dim] - 1, 1), dim, count);
  }
  static Value low_gradient(const Value& edge, int64_t dim, int64_t length) {
    return placed(sum(edge, {dim}, true), dim, 0, length);
  }
  static Value high_gradient(const Value& edge, int64_t dim, int64_t length) {
    return placed(sum(edge, {dim}, true), dim, length - 1, length);
  }
};

/// `padding` lists low and high of the last dimension, then of the one before, ...
template <typename Edge>
Values padded(const AtenCall& call) {  // self padding
  Value a = call.value(0);
  const std::vector<int64_t> padding = call.integers(1);
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    const int64_t dim = rank(a) - 1 - static_cast<int64_t>(i), low = padding[2 * i], high = padding[2 * i + 1];
    std::vector<Value> parts;
    if (low > 0) parts.push_back(Edge::low(a, dim, low));
    parts.push_back(a);
    if (high > 0) parts.push_back(Edge::high(a, dim, high));
    a = concatenate(parts, dim);
  }
  return {a};
}

template <typename Edge>
Values padded_gradient(const AtenCall& call) {  // gradient self padding
  Value gradient = call.value(0);
  const std::vector<int64_t> padding = call.integers(2);
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    const int64_t dim = rank(gradient) - 1 - static_cast<int64_t>(i), low = padding[2 * i], high = padding[2 * i + 1];
    const int64_t length = gradient->shape[dim] - low - high;
    Value total = piece(gradient, dim, low, length);
    if (low > 0) total = total + Edge::low_gradient(piece(gradient, dim, 0, low), dim, length);
    if (high > 0) total = total + Edge::high_gradient(piece(gradient, dim, low + length, high), dim, length);
    gradient = total;
  }
  return {gradient};
}

/// Negative padding runs on the CPU.
template <int padding>
bool only_adds(const AtenCall& call) {
  const std::vector<int64_t> amounts = call.integers(padding);
  return std::all_of(amounts.begin(), amounts.end(), [](int64_t amount) { return amount >= 0; });
}

Values constant_pad(const AtenCall& call) {  // self pad value
  const Value a = call.value(0);
  const std::vector<int64_t> padding = call.integers(1);
  Shape low(a->shape.size(), 0), high = low;
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    low[low.size() - 1 - i] = padding[2 * i];
    high[high.size() - 1 - i] = padding[2 * i + 1];
  }
  return {pad(a, call.number(2), low, high)};
}

#define LOCKSTEP_XLA_PAD(name, edge) \
  {name, padded<edge>, only_adds<1>}, { name "_backward", padded_gradient<edge>, only_adds<2> }

const Lowering kPaddings[] = {
    {"constant_pad_nd", constant_pad},
    LOCKSTEP_XLA_PAD("reflection_pad1d", Reflection),
    LOCKSTEP_XLA_PAD("reflection_pad2d", Reflection),
    LOCKSTEP_XLA_PAD("reflection_pad3d", Reflection),
    LOCKSTEP_XLA_PAD("replication_pad1d", Replication),
    LOCKSTEP_XLA_PAD("replication_pad2d", Replication),
    LOCKSTEP_XLA_PAD("replication_pad3d", Replication),
};

#undef LOCKSTEP_XLA_PAD

}  // namespace

Lowerings padding_lowerings() { return kPaddings; }

}  // namespace lockstep::xla
