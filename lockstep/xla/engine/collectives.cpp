#include "lockstep/xla/engine/collectives.h"

#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/origin.h"

namespace lockstep::xla {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

LazyStorage& checked_storage(const at::Tensor& tensor) {
  LazyStorage* storage = storage_of(tensor);
  LOCKSTEP_CHECK_VALUE(storage != nullptr, "[", current_origin(), "] the tensor must be on an XLA device: device=",
                       tensor.defined() ? tensor.device().str() : "undefined");
  return *storage;
}

bool adds_up(ReduceOp op) { return op == ReduceOp::Sum || op == ReduceOp::Mean; }

/// The dtype in which values are combined.
Dtype dtype_of_sum(Dtype dtype, ReduceOp op) {
  if (!adds_up(op) && op != ReduceOp::Product) return dtype;
  if (dtype == at::kHalf || dtype == at::kBFloat16) return at::kFloat;
  if (op == ReduceOp::Mean && !is_float(dtype)) return c10::elementSize(dtype) <= 2 ? at::kFloat : at::kDouble;
  return dtype;
}

/// The sum of booleans is their logical or, the product their logical and.
Combiner combiner_of(ReduceOp op, Dtype dtype) {
  switch (op) {
    case ReduceOp::Min:
      return Combiner::Minimum;
    case ReduceOp::Max:
      return Combiner::Maximum;
    case ReduceOp::Product:
      return dtype == at::kBool ? Combiner::And : Combiner::Multiply;
    default:
      return dtype == at::kBool ? Combiner::Or : Combiner::Add;
  }
}

/// Numbers a collective, so that those of replicas with different graphs can be matched.
Value numbered(Value collective, XlaDevice& device) {
  collective->ordinal = device.next_collective();
  device.note(current_origin());
  device.open_collective(collective);
  return collective;
}

/// Plugins differ in what the maximum of a number and NaN is over replicas, so the collective gets numbers only, and
/// beside them whether a replica has NaN.
Value ordered_with_nan(Combiner combiner, const Value& value, int replicas, at::IntArrayRef groups, XlaDevice& device) {
  Shape one{1};
  one.append(value->shape.begin(), value->shape.end());
  const Value is_nan = compare(Comparison::NE, value, value);
  const double mark = combiner == Combiner::Maximum ? 1 : -1;
  const Value zeros = fill(0, value->dtype, value->shape);
  const Value numbers = reshape(select(is_nan, zeros, value), one);
  const Value marks = reshape(select(is_nan, fill(mark, value->dtype, value->shape), zeros), one);
  const Value both = numbered(all_reduce(combiner, concatenate({numbers, marks}, 0), replicas, groups), device);
  const auto part = [&](int64_t index) {
    Shape begin(both->shape.size(), 0);
    Shape end = both->shape;
    begin[0] = index;
    end[0] = index + 1;
    return reshape(slice(both, begin, end), value->shape);
  };
  const Value any_nan = compare(Comparison::NE, part(1), zeros);
  return select(any_nan, fill(std::numeric_limits<double>::quiet_NaN(), value->dtype, value->shape), part(0));
}

at::Tensor annotate_tensor(const at::Tensor& tensor, LayoutPtr layout) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const OriginGuard origin("annotation");
  LazyStorage& storage = checked_storage(tensor);
  Value value = read(tensor);
  if (storage.device().num_partitions() == 1) return wrap(std::move(value), storage.device());
  const bool not_sent = value->op == Op::Argument && data_of(*value).host.defined();
  if (not_sent && data_of(*value).layout == nullptr && is_tiled(layout)) data_of(*value).layout = layout;
  return wrap(annotate(std::move(value), layout), storage.device());
}

struct Annotate : torch::autograd::Function<Annotate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, int64_t layout) {
    context->saved_data["layout"] = layout;
    return annotate_tensor(tensor, reinterpret_cast<LayoutPtr>(layout));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto layout = reinterpret_cast<LayoutPtr>(context->saved_data["layout"].toInt());
    return {annotate_tensor(gradients[0], layout), at::Tensor()};
  }
};

}  // namespace

at::Tensor all_reduced(const at::Tensor& tensor, ReduceOp op, int replicas, at::IntArrayRef groups) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const OriginGuard origin("all_reduce");
  LazyStorage& storage = checked_storage(tensor);
  const Dtype dtype = tensor.scalar_type();
  const Dtype wide = dtype_of_sum(dtype, op);
  LOCKSTEP_CHECK_TYPE(op != ReduceOp::Mean || dtype != at::kBool,
                      "[all_reduce] bool has no mean: dtype=bool; convert it to a floating-point type");
  const Combiner combiner = combiner_of(op, wide);
  const bool has_nan = is_float(wide) && (combiner == Combiner::Minimum || combiner == Combiner::Maximum);
  Value value = convert(read(tensor), wide);
  value = has_nan ? ordered_with_nan(combiner, value, replicas, groups, storage.device())
                  : numbered(all_reduce(combiner, std::move(value), replicas, groups), storage.device());
  if (op == ReduceOp::Mean) value = divide(value, number_like(replicas, value));
  return wrap(is_float(dtype) ? convert(std::move(value), dtype) : value, storage.device());
}

at::Tensor all_gathered(const at::Tensor& tensor, int64_t dim, int replicas, at::IntArrayRef groups) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const OriginGuard origin("all_gather");
  LazyStorage& storage = checked_storage(tensor);
  Value stacked = numbered(all_gather(read(tensor), replicas, groups), storage.device());
  // [replica, ..., dim, ...] -> [..., replica, dim, ...] -> [..., replica * dim, ...]
  Shape order;
  Shape joined;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (i == dim) order.push_back(0);
    order.push_back(i + 1);
    joined.push_back(tensor.size(i) * (i == dim ? replicas : 1));
  }
  return wrap(reshape(transpose(std::move(stacked), order), joined), storage.device());
}

at::Tensor broadcast_from(const at::Tensor& tensor, int root, int replicas, at::IntArrayRef groups) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const OriginGuard origin("broadcast");
  LazyStorage& storage = checked_storage(tensor);
  const Value stacked = numbered(all_gather(read(tensor), replicas, groups), storage.device());
  Shape begin(stacked->shape.size(), 0);
  Shape end = stacked->shape;
  begin[0] = root;
  end[0] = root + 1;
  return wrap(reshape(slice(stacked, begin, end), tensor.sizes()), storage.device());
}

at::Tensor annotated(const at::Tensor& tensor, LayoutPtr layout) {
  const OriginGuard origin("annotation");
  checked_storage(tensor);
  return Annotate::apply(tensor, reinterpret_cast<int64_t>(layout));
}

}  // namespace lockstep::xla
