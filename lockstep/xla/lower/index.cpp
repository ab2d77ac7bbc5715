#include "lockstep/xla/lower/addresses.h"
#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/lower/value_checks.h"

namespace lockstep::xla {
namespace {

Value flat(const Value& a) { return reshape(a, {a->numel()}); }

/// The slices of `table` along `dim`, at indices from 0.
Value checked_take(const AtenCall& call, const Value& table, const Value& indices, int64_t dim) {
  check_indices(call, indices, 0, table->shape[dim]);
  return take(table, indices, dim);
}

Values embedding(const AtenCall& call) { return {checked_take(call, call.value(0), call.value(1), 0)}; }

Values embedding_gradient(const AtenCall& call) {  // gradient indices num_weights padding_idx scale_grad_by_freq
  Value gradient = widened(call.value(0));
  const Value indices = call.value(1);
  if (call.integer(3) >= 0) {
    const Value counts = compare(Comparison::NE, indices, call.scalar(3, indices->dtype));
    gradient = select(broadcast_dims(counts, gradient->shape, all_dims(indices)), gradient, 0);
  }
  const Value table = fill(0, gradient->dtype, {call.integer(2), gradient->shape.back()});
  return {convert(scatter(Combiner::Add, table, indices, gradient), dtype_of(call, 0))};
}

Values index_select(const AtenCall& call) {  // self dim index
  const Value a = call.value(0), index = call.value(2);
  if (rank(a) == 0) return {a};
  return {checked_take(call, a, flat(index), wrap_dim(call.integer(1), rank(a)))};
}

Values gather(const AtenCall& call) {  // self dim index sparse_grad
  const Value a = at_least_one_dim(call.value(0)), index = at_least_one_dim(call.value(2));
  const int64_t dim = wrap_dim(call.integer(1), rank(a));
  check_indices(call, index, 0, a->shape[dim]);
  const Value address = addresses_along(index, dim, a->shape);
  return {reshape(take(flat(a), address, 0), call.tensor(2).sizes())};
}

Values take_flat(const AtenCall& call) {  // self index
  const Value a = call.value(0), index = call.value(1);
  check_indices(call, index, -a->numel(), a->numel());
  return {take(flat(a), from_end(index, a->numel()), 0)};
}

Values index(const AtenCall& call) {
  const Value a = call.value(0);
  return {Advanced(call, 1, a).read(a)};
}

/// The only mask among the indices and its first dimension; an undefined tensor if the indices are not one mask.
std::pair<at::Tensor, int64_t> only_mask(const AtenCall& call) {
  std::pair<at::Tensor, int64_t> found{{}, 0};
  const auto indices = call.argument(1).toOptionalTensorVector();
  for (size_t dim = 0; dim < indices.size(); ++dim) {
    if (!indices[dim].has_value() || !indices[dim]->defined()) continue;
    if (found.first.defined() || indices[dim]->scalar_type() != at::kBool) return {};
    found = {*indices[dim], static_cast<int64_t>(dim)};
  }
  return found;
}

/// A mask determines the number of written values, which a program must know: only one value for all is covered.
bool covers_index_put(const AtenCall& call) {
  return Advanced::covers(call, 1) || (only_mask(call).first.defined() && call.tensor(2).numel() == 1);
}

Values index_put(const AtenCall& call) {  // self indices values accumulate
  const Value a = call.value(0), values = call.value(2, a->dtype);
  const auto [mask, first] = only_mask(call);
  if (!mask.defined()) return {Advanced(call, 1, a).write(call.flag(3) ? Combiner::Add : Combiner::Update, a, values)};
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < mask.dim(); ++dim) dims.push_back(first + dim);
  const Value value = reshape(values, {});
  return {select(broadcast_dims(call.value(mask), a->shape, dims), call.flag(3) ? a + value : value, a)};
}

const Lowering kIndexing[] = {
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_gradient, [](const AtenCall& call) { return !call.flag(4); }},
    // XLA has no sparse tensors: the gradient of a table is dense.
    {"embedding_sparse_backward", embedding_gradient, [](const AtenCall& call) { return !call.flag(4); }},
    {"index_select", index_select},
    {"gather", gather},
    {"take", take_flat},
    {"index.Tensor", index, [](const AtenCall& call) { return Advanced::covers(call, 1); }},
    {"index_put", index_put, covers_index_put},
    {"_index_put_impl", index_put, covers_index_put},
};

}  // namespace

Lowerings index_lowerings() { return kIndexing; }

}  // namespace lockstep::xla
