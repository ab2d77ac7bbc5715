#include "lockstep/xla/lower/addresses.h"

#include <algorithm>
#include <numeric>

#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/lower/value_checks.h"

namespace lockstep::xla {
namespace {

std::vector<int64_t> inverse(Ints order) {
  std::vector<int64_t> result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[order[i]] = static_cast<int64_t>(i);
  return result;
}

/// The order that takes `dim` to the front.
std::vector<int64_t> front_order(int64_t dims, int64_t dim) {
  std::vector<int64_t> order(dims);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + dim, order.begin() + dim + 1);
  return order;
}

}  // namespace

Value at_least_one_dim(const Value& a) { return rank(a) == 0 ? reshape(a, {1}) : a; }

Value addresses_along(const Value& index, int64_t dim, Ints shape) {
  Value address;
  for (int64_t i = 0; i < rank(index); ++i) {
    const Value position = i == dim ? convert(index, at::kLong) : iota(at::kLong, index->shape, i);
    address = address ? address * shape[i] + position : position;
  }
  return address;
}

Value from_end(const Value& index, int64_t size) {
  return select(compare(Comparison::LT, index, 0), index + size, index);
}

Value to_front(const Value& a, int64_t dim) { return transpose(a, front_order(rank(a), dim)); }
Value to_back(const Value& a, int64_t dim) { return transpose(a, inverse(front_order(rank(a), dim))); }

bool Advanced::covers(const AtenCall& call, int i) {
  bool any = false;
  for (const auto& index : call.argument(i).toOptionalTensorVector()) {
    if (!index.has_value() || !index->defined()) continue;
    if (index->scalar_type() != at::kLong && index->scalar_type() != at::kInt) return false;
    any = true;
  }
  return any;
}

Advanced::Advanced(const AtenCall& call, int i, const Value& a) {
  std::vector<int64_t> others;
  const auto indices = call.argument(i).toOptionalTensorVector();
  for (int64_t dim = 0; dim < rank(a); ++dim) {
    const bool has_index =
        dim < static_cast<int64_t>(indices.size()) && indices[dim].has_value() && indices[dim]->defined();
    if (!has_index) {
      others.push_back(dim);
      continue;
    }
    dims_.push_back(dim);
    const Value index = convert(call.value(*indices[dim]), at::kLong);
    check_indices(call, index, -a->shape[dim], a->shape[dim]);
    const Value position = from_end(index, a->shape[dim]);
    row_ = row_ ? row_ * a->shape[dim] + position : position;
  }
  const bool adjacent = dims_.back() - dims_.front() + 1 == static_cast<int64_t>(dims_.size());
  position_ = adjacent ? dims_.front() : 0;
  rows_shape_.push_back(product(a->shape, dims_));
  for (int64_t dim : others) rows_shape_.push_back(a->shape[dim]);
  dims_.insert(dims_.end(), others.begin(), others.end());
}

Value Advanced::rows(const Value& a) const { return reshape(transpose(a, dims_), rows_shape_); }

std::vector<int64_t> Advanced::order() const {
  const int64_t indexed = rank(row_), others = static_cast<int64_t>(rows_shape_.size()) - 1;
  std::vector<int64_t> order(indexed + others);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + indexed, order.begin() + indexed + static_cast<int64_t>(position_));
  return order;
}

Value Advanced::read(const Value& a) const { return transpose(take(rows(a), row_, 0), order()); }

Value Advanced::write(Combiner combiner, const Value& a, const Value& values) const {
  Shape taken = row_->shape;
  taken.append(rows_shape_.begin() + 1, rows_shape_.end());
  Shape shape;
  for (int64_t dim : order()) shape.push_back(taken[dim]);
  const Value updates = transpose(broadcast(values, shape), inverse(order()));
  Shape moved;
  for (int64_t dim : dims_) moved.push_back(a->shape[dim]);
  return transpose(reshape(scatter(combiner, rows(a), row_, updates), moved), inverse(dims_));
}

}  // namespace lockstep::xla
