#include "lockstep/strategy/replica_context.h"

#include <map>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
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

/// Applies a collective to the tensors on each kind of device: numbers travel through the CPU beside tensors on GPUs.
template <class Collective>
std::vector<at::Tensor> for_each_device_kind(std::vector<at::Tensor> tensors, Collective&& collective) {
  std::map<c10::DeviceType, std::vector<size_t>> kinds;
  for (size_t i = 0; i < tensors.size(); ++i) kinds[tensors[i].device().type()].push_back(i);
  for (const auto& [kind, indices] : kinds) {
    std::vector<at::Tensor> alike;
    for (const size_t i : indices) alike.push_back(tensors[i]);
    alike = collective(alike);
    for (size_t k = 0; k < indices.size(); ++k) tensors[indices[k]] = alike[k];
  }
  return tensors;
}

// Note: LibTorch gives `backward` zeros where no gradient flowed, so that every replica makes the collective.

struct AllReduceFunction : torch::autograd::Function<AllReduceFunction> {
  static variable_list forward(AutogradContext* ctx, const comm::Group* group, int64_t op, at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->saved_data["group"] = reinterpret_cast<int64_t>(group);
    ctx->saved_data["op"] = op;
    return group->all_reduce(inputs, static_cast<ReduceOp::Kind>(op));
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto* group = reinterpret_cast<const comm::Group*>(ctx->saved_data["group"].toInt());
    const ReduceOp op = static_cast<ReduceOp::Kind>(ctx->saved_data["op"].toInt());
    LOCKSTEP_CHECK_IMPLEMENTED(op == ReduceOp::Sum || op == ReduceOp::Mean,
                               "[all_reduce] only sums and means have gradients: op=", op);
    variable_list result{at::Tensor(), at::Tensor()};
    for (at::Tensor& gradient : group->all_reduce(gradients, op)) {
      result.push_back(std::move(gradient));
    }
    return result;
  }
};

struct AllGatherFunction : torch::autograd::Function<AllGatherFunction> {
  static variable_list forward(AutogradContext* ctx, const comm::Group* group, int64_t axis, at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->saved_data["group"] = reinterpret_cast<int64_t>(group);
    ctx->saved_data["axis"] = axis;
    std::vector<int64_t> lengths;
    for (const at::Tensor& input : inputs) lengths.push_back(input.size(axis));
    const at::Tensor all_lengths = group->all_gather(at::tensor(lengths, at::kLong).unsqueeze(0), 0);
    const at::Tensor before = all_lengths.slice(0, 0, group->rank()).sum(0);
    ctx->saved_data["offsets"] =
        std::vector<int64_t>(before.data_ptr<int64_t>(), before.data_ptr<int64_t>() + before.numel());
    ctx->saved_data["lengths"] = lengths;
    return group->all_gather(inputs, axis);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto* group = reinterpret_cast<const comm::Group*>(ctx->saved_data["group"].toInt());
    const int64_t axis = ctx->saved_data["axis"].toInt();
    const auto offsets = ctx->saved_data["offsets"].toIntVector();
    const auto lengths = ctx->saved_data["lengths"].toIntVector();
    const auto sums = group->all_reduce(gradients, ReduceOp::Sum);
    variable_list result{at::Tensor(), at::Tensor()};
    for (size_t i = 0; i < sums.size(); ++i) result.push_back(sums[i].narrow(axis, offsets[i], lengths[i]));
    return result;
  }
};

}  // namespace

ReplicaContext::ReplicaContext(std::shared_ptr<detail::StrategyImpl> strategy, int replica, uint64_t run)
    : strategy_(std::move(strategy)), replica_(replica), run_(run) {}

void ReplicaContext::check_current(const char* operation) const {
  LOCKSTEP_CHECK_CONTEXT(strategy_ != nullptr, "[", operation,
                         "] needs a replica context, but this one is null: get_replica_context() was called in ",
                         "cross-replica context; call it inside the function given to `run`");
  const detail::ContextFrame* frame = detail::current_frame();
  if (frame == nullptr) {
    LOCKSTEP_CHECK_CONTEXT(run_ == 0, "[", operation,
                           "] must be called inside the function given to `run`: replica=", replica_,
                           "; this context was kept after its run had ended");
    return;
  }
  LOCKSTEP_CHECK_CONTEXT(frame->strategy == strategy_.get(), "[", operation,
                         "] mixing different strategies: the context is of a ", strategy_->type_name(),
                         ", current is a ", frame->strategy->type_name());
  LOCKSTEP_CHECK_CONTEXT(frame->replica == replica_, "[", operation,
                         "] mismatching ReplicaContext: the context is of replica ", replica_, ", ",
                         frame->replica < 0 ? std::string("but this is cross-replica context")
                                            : c10::str("but this is replica ", frame->replica),
                         "; call get_replica_context() where it is used");
  LOCKSTEP_CHECK_CONTEXT(frame->run == run_, "[", operation, "] mismatching ReplicaContext: the context of replica ",
                         replica_, " was kept after its run had ended; call get_replica_context() in every run");
}

int ReplicaContext::replica_id_in_sync_group() const { return strategy_ ? strategy_->global_replica(replica_) : 0; }

int ReplicaContext::num_replicas_in_sync() const { return strategy_ ? strategy_->num_replicas_in_sync() : 0; }

Strategy ReplicaContext::strategy() const { return Strategy(strategy_); }

std::vector<std::string> ReplicaContext::devices() const {
  check_current("devices");
  if (strategy_->is_default()) return {current_device()};
  return {strategy_->devices()[replica_].name};
}

std::vector<at::Tensor> ReplicaContext::all_reduce_tensors(ReduceOp op, std::vector<at::Tensor> tensors,
                                                           const CommunicationOptions& options) const {
  options.validate();
  if (num_replicas_in_sync() == 1) return tensors;
  const comm::Group& group = strategy_->group(replica_);
  return for_each_device_kind(std::move(tensors), [&](const std::vector<at::Tensor>& alike) -> std::vector<at::Tensor> {
    if (!needs_gradient(alike)) return group.all_reduce(alike, op, options);
    return AllReduceFunction::apply(&group, static_cast<int64_t>(op), at::TensorList(alike));
  });
}

std::vector<at::Tensor> ReplicaContext::all_gather_tensors(std::vector<at::Tensor> tensors, int64_t axis,
                                                           const CommunicationOptions& options) const {
  options.validate();
  if (num_replicas_in_sync() == 1) return tensors;
  for (const at::Tensor& tensor : tensors) {
    LOCKSTEP_CHECK_VALUE(tensor.dim() > 0, "[all_gather] scalars cannot be concatenated: rank=0; reshape them first");
    LOCKSTEP_CHECK_VALUE(axis >= -tensor.dim() && axis < tensor.dim(), "[all_gather] the axis must be in [",
                         -tensor.dim(), ", ", tensor.dim(), "): axis=", axis);
  }
  const comm::Group& group = strategy_->group(replica_);
  if (needs_gradient(tensors)) return AllGatherFunction::apply(&group, axis, at::TensorList(tensors));
  return group.all_gather(tensors, axis, options);
}

IndexedSlices ReplicaContext::all_reduce_slices(ReduceOp op, const IndexedSlices& slices,
                                                const CommunicationOptions& options) const {
  options.validate();
  LOCKSTEP_CHECK_VALUE(op == ReduceOp::Sum || op == ReduceOp::Mean,
                       "[all_reduce] slices can be summed or averaged: op=", op);
  if (num_replicas_in_sync() == 1) return slices;
  const comm::Group& group = strategy_->group(replica_);
  IndexedSlices all = slices;
  all.indices = group.all_gather(slices.indices, 0, options);
  all.values = group.all_gather(slices.values, 0, options);
  if (op == ReduceOp::Mean) all.values = detail::divide_for_mean(all.values, num_replicas_in_sync());
  return all;
}

namespace detail {

ContextFrame merge_frame(StrategyImpl& strategy) {
  const ContextFrame* replica = current_frame();
  return {&strategy, -1, replica == nullptr ? 1 : replica->depth + 1, 0};
}

void fail_gather_in_replica() {
  LOCKSTEP_CHECK_IMPLEMENTED(false, "[all_gather] slices cannot be concatenated: make them dense first (to_dense)");
  std::abort();
}

void fail_integer_mean() {
  LOCKSTEP_CHECK_TYPE(false,
                      "[all_reduce] the mean of integers is no integer: pass a floating-point number or a tensor");
  std::abort();
}

void meet_for_merge(StrategyImpl& strategy, int replica, const char* step, void* mine, const std::type_info& type,
                    c10::function_ref<void(at::ArrayRef<void*>)> use, std::chrono::milliseconds timeout) {
  strategy.before_merge(replica);
  comm::Call call;
  call.operation = step;
  call.payload = mine;
  call.payload_type = &type;
  comm::Meeting meeting(strategy.rendezvous(), replica, call, timeout);
  std::vector<void*> all;
  for (const comm::Call* other : meeting.calls()) all.push_back(other->payload);
  use(all);
  meeting.finish();
}

}  // namespace detail
}  // namespace lockstep
