#include "lockstep/strategy/reduce/replica_collectives.h"

#include <map>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool needs_gradient(const std::vector<at::Tensor>& tensors) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) return true;
  }
  return false;
}

/// Applies a collective to the tensors of each device type: numbers are tensors on the CPU, beside tensors on GPUs.
/// What carries them there is not what `options` choose for the GPUs.
template <class Collective>
std::vector<at::Tensor> for_each_device_kind(std::vector<at::Tensor> tensors, const CommunicationOptions& options,
                                             Collective&& collective) {
  std::map<c10::DeviceType, std::vector<size_t>> kinds;
  for (size_t i = 0; i < tensors.size(); ++i) kinds[tensors[i].device().type()].push_back(i);
  for (const auto& [kind, indices] : kinds) {
    std::vector<at::Tensor> alike;
    for (const size_t i : indices) alike.push_back(tensors[i]);
    CommunicationOptions of_kind = options;
    if (kind == at::kCPU && kinds.size() > 1) of_kind.implementation = CommunicationImplementation::Auto;
    alike = collective(alike, of_kind);
    for (size_t k = 0; k < indices.size(); ++k) tensors[indices[k]] = alike[k];
  }
  return tensors;
}

/// What the backward pass of a collective needs. It owns its group, so that it may outlive the strategy.
struct CollectiveState : torch::CustomClassHolder {
  CollectiveState(comm::Group group_, CommunicationOptions options_) : group(std::move(group_)), options(options_) {}

  const comm::Group group;
  const CommunicationOptions options;
};

using StatePtr = c10::intrusive_ptr<CollectiveState>;

void save(AutogradContext& ctx, const StatePtr& state) { ctx.saved_data["state"] = c10::IValue::make_capsule(state); }

StatePtr saved(AutogradContext& ctx) {
  return c10::static_intrusive_pointer_cast<CollectiveState>(ctx.saved_data["state"].toCapsule());
}

std::vector<at::Tensor> differentiable_all_reduce(const StatePtr& state, ReduceOp op, const variable_list& tensors);

// LibTorch gives `backward` zeros where no gradient flowed, so that every replica makes the collective.

struct AllReduceFunction : torch::autograd::Function<AllReduceFunction> {
  static variable_list forward(AutogradContext* ctx, const StatePtr& state, int64_t op, at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    ctx->saved_data["op"] = op;
    return state->group.all_reduce(inputs, static_cast<ReduceOp::Kind>(op), state->options);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const ReduceOp op = static_cast<ReduceOp::Kind>(ctx->saved_data["op"].toInt());
    LOCKSTEP_CHECK_IMPLEMENTED(op == ReduceOp::Sum || op == ReduceOp::Mean,
                               "[all_reduce] only sums and means have gradients: op=", op);
    variable_list result{at::Tensor(), at::Tensor()};
    for (at::Tensor& gradient : differentiable_all_reduce(saved(*ctx), op, gradients)) {
      result.push_back(std::move(gradient));
    }
    return result;
  }
};

std::vector<at::Tensor> differentiable_all_reduce(const StatePtr& state, ReduceOp op, const variable_list& tensors) {
  if (!needs_gradient(tensors)) return state->group.all_reduce(tensors, op, state->options);
  return AllReduceFunction::apply(state, static_cast<int64_t>(op), at::TensorList(tensors));
}

/// Where the parts of this replica begin in gathered tensors; its parts have the given lengths.
std::vector<int64_t> offsets_of_own_parts(const CollectiveState& state, std::vector<int64_t> lengths,
                                          c10::Device device) {
  const comm::Group& group = state.group;
  if (device.is_xla()) {  // traced replicas have equal shapes
    for (int64_t& length : lengths) length *= group.rank();
    return lengths;
  }
  CommunicationOptions of_numbers = state.options;
  of_numbers.implementation = CommunicationImplementation::Auto;
  const at::Tensor own = at::tensor(lengths, at::TensorOptions(at::kLong).device(at::kCPU));
  const at::Tensor before = group.all_gather(own.unsqueeze(0), 0, of_numbers).slice(0, 0, group.rank()).sum(0);
  return {before.data_ptr<int64_t>(), before.data_ptr<int64_t>() + before.numel()};
}

/// Returns `length` rows along `axis`. Where replicas are compiled as one program, each has another offset, so it is a
/// number of the program, not a part of its text.
at::Tensor own_part(const at::Tensor& whole, int64_t axis, int64_t offset, int64_t length) {
  if (!whole.device().is_xla()) return whole.narrow(axis, offset, length);
  const auto integers = at::TensorOptions(at::kLong).device(whole.device());
  return whole.index_select(axis, at::arange(length, integers) + offset);
}

struct AllGatherFunction : torch::autograd::Function<AllGatherFunction> {
  static variable_list forward(AutogradContext* ctx, const StatePtr& state, int64_t axis, at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    ctx->saved_data["axis"] = axis;
    std::vector<int64_t> lengths;
    for (const at::Tensor& input : inputs) lengths.push_back(input.size(axis));
    ctx->saved_data["offsets"] = offsets_of_own_parts(*state, lengths, inputs[0].device());
    ctx->saved_data["lengths"] = lengths;
    return state->group.all_gather(inputs, axis, state->options);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const int64_t axis = ctx->saved_data["axis"].toInt();
    const auto offsets = ctx->saved_data["offsets"].toIntVector();
    const auto lengths = ctx->saved_data["lengths"].toIntVector();
    const auto sums = differentiable_all_reduce(saved(*ctx), ReduceOp::Sum, gradients);
    variable_list result{at::Tensor(), at::Tensor()};
    for (size_t i = 0; i < sums.size(); ++i) {
      result.push_back(own_part(sums[i], axis, offsets[i], lengths[i]));
    }
    return result;
  }
};

void check_defined(const char* operation, const StrategyImpl& strategy, int replica,
                   const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(tensors[i].defined(), "[", operation, "] every tensor must be defined: tensor ", i, " of ",
                         tensors.size(), " is undefined on replica ", strategy.global_replica(replica),
                         "; every replica takes part with a tensor: give zeros of the shape that the others have ",
                         "where a replica has no value, such as a gradient that backward has not computed");
  }
}

/// The options of a call, with those of the strategy where the call has none. The strategy's implementation has chosen
/// its engine already.
CommunicationOptions merged_options(const StrategyImpl& strategy, const CommunicationOptions& options) {
  CommunicationOptions merged = strategy.communication_options().merge(options);
  merged.implementation = options.implementation;
  return merged;
}

}  // namespace

std::vector<at::Tensor> all_reduce(const StrategyImpl& strategy, int replica, ReduceOp op,
                                   std::vector<at::Tensor> tensors, const CommunicationOptions& given) {
  given.validate();
  check_defined("all_reduce", strategy, replica, tensors);
  const comm::Group& group = strategy.group(replica);
  const CommunicationOptions options = merged_options(strategy, given);
  return for_each_device_kind(
      std::move(tensors), options,
      [&](const std::vector<at::Tensor>& alike, const CommunicationOptions& of_kind) -> std::vector<at::Tensor> {
        if (!needs_gradient(alike)) return group.all_reduce(alike, op, of_kind);
        return differentiable_all_reduce(c10::make_intrusive<CollectiveState>(group, of_kind), op, alike);
      });
}

std::vector<at::Tensor> all_gather(const StrategyImpl& strategy, int replica, std::vector<at::Tensor> tensors,
                                   int64_t axis, const CommunicationOptions& given) {
  given.validate();
  check_defined("all_gather", strategy, replica, tensors);
  if (strategy.num_replicas_in_sync() == 1) {
    for (at::Tensor& tensor : tensors) tensor = tensor.clone();
    return tensors;
  }
  for (const at::Tensor& tensor : tensors) {
    LOCKSTEP_CHECK_VALUE(tensor.dim() > 0, "[all_gather] scalars cannot be concatenated: rank=0; reshape them first");
    LOCKSTEP_CHECK_VALUE(axis >= -tensor.dim() && axis < tensor.dim(), "[all_gather] the axis must be in [",
                         -tensor.dim(), ", ", tensor.dim(), "): axis=", axis);
  }
  const comm::Group& group = strategy.group(replica);
  const CommunicationOptions options = merged_options(strategy, given);
  if (!needs_gradient(tensors)) return group.all_gather(tensors, axis, options);
  return AllGatherFunction::apply(c10::make_intrusive<CollectiveState>(group, options), axis, at::TensorList(tensors));
}

IndexedSlices all_reduce(const StrategyImpl& strategy, int replica, ReduceOp op, const IndexedSlices& slices,
                         const CommunicationOptions& given) {
  given.validate();
  LOCKSTEP_CHECK_VALUE(op == ReduceOp::Sum || op == ReduceOp::Mean,
                       "[all_reduce] slices can be summed or averaged: op=", op);
  check_defined("all_reduce", strategy, replica, {slices.indices, slices.values});
  if (strategy.num_replicas_in_sync() == 1) return slices;
  const comm::Group& group = strategy.group(replica);
  const CommunicationOptions options = merged_options(strategy, given);
  IndexedSlices all = slices;
  all.indices = group.all_gather(slices.indices, 0, options);
  all.values = group.all_gather(slices.values, 0, options);
  if (op == ReduceOp::Mean) all.values = divide_for_mean(all.values, strategy.num_replicas_in_sync());
  return all;
}

}  // namespace lockstep::detail
