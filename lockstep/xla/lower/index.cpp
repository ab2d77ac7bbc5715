#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

Values embedding(const Call& call) { return {take(call.value(0), call.value(1), 0)}; }

Values embedding_gradient(const Call& call) {  // gradient indices num_weights padding_idx scale_grad_by_freq
  Value gradient = widened(call.value(0));
  const Value indices = call.value(1);
  const int64_t padding = call.integer(3), width = gradient->shape.back();
  if (padding >= 0) {
    const Value counts = compare("NE", indices, call.scalar(3, indices->dtype));
    gradient = select(broadcast_dims(counts, gradient->shape, all_dims(indices)), gradient, 0);
  }
  const Value table = fill(0, gradient->dtype, {call.integer(2), width});
  return {convert(scatter("add", table, indices, gradient), dtype_of(call, 0))};
}

Values index_select(const Call& call) {  // self dim index
  const Value a = call.value(0), index = call.value(2);
  if (rank(a) == 0) return {a};
  return {take(a, reshape(index, {index->numel()}), wrap_dim(call.integer(1), rank(a)))};
}

const Lowering kIndexing[] = {
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_gradient, [](const Call& call) { return !call.flag(4); }},
    {"index_select", index_select},
};

}  // namespace

Lowerings index_lowerings() { return kIndexing; }

}  // namespace lockstep::xla
