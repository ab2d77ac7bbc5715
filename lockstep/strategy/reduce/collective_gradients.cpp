#include "lockstep/strategy/reduce/collective_gradients.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void save(AutogradContext& ctx, const CollectiveStatePtr& state) {
  ctx.saved_data["state"] = c10::IValue::make_capsule(state);
}

CollectiveStatePtr saved(AutogradContext& ctx) {
  return c10::static_intrusive_pointer_cast<CollectiveState>(ctx.saved_data["state"].toCapsule());
}

/// The gradients of the two arguments that have none, and those of the tensors.
variable_list after_two(const variable_list& gradients) {
  variable_list all{at::Tensor(), at::Tensor()};
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

// LibTorch gives `backward` zeros where no gradient flowed, so that every replica makes the collective.

struct AllReduceFunction : torch::autograd::Function<AllReduceFunction> {
  static variable_list forward(AutogradContext* ctx, const CollectiveStatePtr& state, int64_t op,
                               at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    ctx->saved_data["op"] = op;
    return state->group.all_reduce(inputs, static_cast<ReduceOp::Kind>(op), state->options);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const ReduceOp op = static_cast<ReduceOp::Kind>(ctx->saved_data["op"].toInt());
    LOCKSTEP_CHECK_IMPLEMENTED(op == ReduceOp::Sum || op == ReduceOp::Mean,
                               "[all_reduce] only sums and means have gradients: op=", op);
    return after_two(differentiable_all_reduce(saved(*ctx), op, gradients));
  }
};

/// The lengths of the parts of all replicas in gathered tensors, `[replica][tensor]`; this replica's have `lengths`.
std::vector<std::vector<int64_t>> lengths_of_all(const CollectiveState& state, const std::vector<int64_t>& lengths,
                                                 c10::Device device) {
  const comm::Group& group = state.group;
  std::vector<std::vector<int64_t>> all(static_cast<size_t>(group.size()), lengths);
  if (device.is_xla()) return all;  // traced replicas have equal shapes
  CommunicationOptions of_numbers = state.options;
  of_numbers.implementation = CommunicationImplementation::Auto;
  const at::Tensor own = at::tensor(lengths, at::TensorOptions(at::kLong).device(at::kCPU));
  const at::Tensor gathered = group.all_gather(own.unsqueeze(0), 0, of_numbers);
  const int64_t* next = gathered.data_ptr<int64_t>();
  for (auto& of_replica : all) {
    for (int64_t& length : of_replica) length = *next++;
  }
  return all;
}

/// Returns `length` rows along `axis`. Where replicas are compiled as one program, each has another offset, so it is a
/// number of the program, not a part of its text.
at::Tensor own_part(const at::Tensor& whole, int64_t axis, int64_t offset, int64_t length) {
  if (!whole.device().is_xla()) return whole.narrow(axis, offset, length);
  const auto integers = at::TensorOptions(at::kLong).device(whole.device());
  return whole.index_select(axis, at::arange(length, integers) + offset);
}

/// Returns the sum over replicas of the rows along `axis` that belong to this one. `lengths` are those of all replicas.
at::Tensor sum_of_own_rows(const CollectiveStatePtr& state, const at::Tensor& whole, int64_t axis,
                           const std::vector<int64_t>& lengths) {
  const at::Tensor rows = differentiable_all_to_all(state, lengths, {whole.transpose(0, axis)})[0];
  auto sizes = rows.sizes().vec();
  sizes[0] = lengths[static_cast<size_t>(state->group.rank())];
  sizes.insert(sizes.begin(), state->group.size());
  return rows.view(sizes).sum(0).transpose(0, axis);
}

struct AllGatherFunction : torch::autograd::Function<AllGatherFunction> {
  static variable_list forward(AutogradContext* ctx, const CollectiveStatePtr& state, int64_t axis,
                               at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    ctx->saved_data["axis"] = axis;
    std::vector<int64_t> own;
    for (const at::Tensor& input : inputs) own.push_back(input.size(axis));
    std::vector<int64_t> all;
    for (const auto& lengths : lengths_of_all(*state, own, inputs[0].device())) {
      all.insert(all.end(), lengths.begin(), lengths.end());
    }
    ctx->saved_data["lengths"] = all;
    return state->group.all_gather(inputs, axis, state->options);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto state = saved(*ctx);
    const int64_t axis = ctx->saved_data["axis"].toInt();
    const auto all = ctx->saved_data["lengths"].toIntVector();
    const auto lengths_of = [&](size_t tensor) {
      std::vector<int64_t> lengths;
      for (size_t i = tensor; i < all.size(); i += gradients.size()) lengths.push_back(all[i]);
      return lengths;
    };
    variable_list result;
    if (state->is_within &&
        !gradients[0].device().is_xla()) {  // sums of whole gradients would have other shapes in other groups
      for (size_t i = 0; i < gradients.size(); ++i) {
        result.push_back(sum_of_own_rows(state, gradients[i], axis, lengths_of(i)));
      }
      return after_two(result);
    }
    const auto sums = differentiable_all_reduce(state, ReduceOp::Sum, gradients);
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto lengths = lengths_of(i);
      const auto own = lengths.begin() + state->group.rank();
      result.push_back(own_part(sums[i], axis, std::accumulate(lengths.begin(), own, int64_t{0}), *own));
    }
    return after_two(result);
  }
};

struct BroadcastFunction : torch::autograd::Function<BroadcastFunction> {
  static variable_list forward(AutogradContext* ctx, const CollectiveStatePtr& state, int64_t root,
                               at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    ctx->saved_data["root"] = root;
    return state->group.broadcast(inputs, static_cast<int>(root), state->options);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients);
};

/// The sum at the root, and zeros elsewhere.
struct ReduceFunction : torch::autograd::Function<ReduceFunction> {
  static variable_list forward(AutogradContext* ctx, const CollectiveStatePtr& state, int64_t root,
                               at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    ctx->saved_data["root"] = root;
    variable_list sums = state->group.reduce(inputs, static_cast<int>(root), ReduceOp::Sum, state->options);
    if (!sums.empty()) return sums;
    for (const at::Tensor& input : inputs) sums.push_back(at::zeros_like(input));
    return sums;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return after_two(
        differentiable_broadcast(saved(*ctx), static_cast<int>(ctx->saved_data["root"].toInt()), gradients));
  }
};

variable_list BroadcastFunction::backward(AutogradContext* ctx, variable_list gradients) {
  return after_two(ReduceFunction::apply(saved(*ctx), ctx->saved_data["root"].toInt(), at::TensorList(gradients)));
}

/// Concatenates the shares of all replicas, which together have `rows`.
at::Tensor gather_shares(const CollectiveStatePtr& state, const at::Tensor& share, int64_t rows) {
  const int size = state->group.size();
  const bool is_even = rows % size == 0;
  if (is_even || !share.device().is_xla()) return differentiable_all_gather(state, 0, {share})[0];
  // Traced replicas have equal shapes: shares are filled up, and what was added is left out.
  auto sizes = share.sizes().vec();
  const int64_t most = rows / size + 1;
  sizes[0] = most - share.size(0);
  const at::Tensor filled = at::cat({share, at::zeros(sizes, share.options())});
  std::vector<int64_t> wanted;
  for (int rank = 0; rank < size; ++rank) {
    for (int64_t row = 0; row < comm::row_share(rows, rank, size).count; ++row) wanted.push_back(rank * most + row);
  }
  const at::Tensor indices = at::tensor(wanted, at::TensorOptions(at::kLong).device(at::kCPU)).to(share.device());
  return differentiable_all_gather(state, 0, {filled})[0].index_select(0, indices);
}

struct ReduceScatterFunction : torch::autograd::Function<ReduceScatterFunction> {
  static variable_list forward(AutogradContext* ctx, const CollectiveStatePtr& state, int64_t op,
                               at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    ctx->saved_data["op"] = op;
    variable_list shares;
    std::vector<int64_t> rows;
    for (const at::Tensor& input : inputs) {
      shares.push_back(state->group.reduce_scatter(input, static_cast<ReduceOp::Kind>(op), state->options));
      rows.push_back(input.size(0));
    }
    ctx->saved_data["rows"] = rows;
    return shares;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const ReduceOp op = static_cast<ReduceOp::Kind>(ctx->saved_data["op"].toInt());
    LOCKSTEP_CHECK_IMPLEMENTED(op == ReduceOp::Sum || op == ReduceOp::Mean,
                               "[reduce_scatter] only sums and means have gradients: op=", op);
    const auto state = saved(*ctx);
    const auto rows = ctx->saved_data["rows"].toIntVector();
    variable_list results;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor whole = gather_shares(state, gradients[i], rows[i]);
      results.push_back(op == ReduceOp::Mean ? whole / state->group.size() : whole);
    }
    return after_two(results);
  }
};

struct AllToAllFunction : torch::autograd::Function<AllToAllFunction> {
  static variable_list forward(AutogradContext* ctx, const CollectiveStatePtr& state,
                               const std::vector<int64_t>& split_sizes, at::TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(*ctx, state);
    comm::RowCounts received;
    variable_list results = state->group.all_to_all(inputs, split_sizes, state->options, &received);
    std::vector<int64_t> rows;
    for (const auto& of_tensor : received) rows.insert(rows.end(), of_tensor.begin(), of_tensor.end());
    ctx->saved_data["received"] = rows;
    return results;
  }

  /// What was received from a replica goes back to it.
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto state = saved(*ctx);
    const auto received = ctx->saved_data["received"].toIntVector();
    const auto size = static_cast<std::ptrdiff_t>(state->group.size());
    variable_list results;
    auto next = received.begin();
    for (const at::Tensor& gradient : gradients) {
      results.push_back(differentiable_all_to_all(state, {next, next + size}, {gradient})[0]);
      next += size;
    }
    return after_two(results);
  }
};

}  // namespace

bool needs_gradient(const std::vector<at::Tensor>& tensors) {
  if (!at::GradMode::is_enabled()) return false;
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

std::vector<at::Tensor> differentiable_all_reduce(const CollectiveStatePtr& state, ReduceOp op,
                                                  const std::vector<at::Tensor>& tensors) {
  if (!needs_gradient(tensors)) return state->group.all_reduce(tensors, op, state->options);
  return AllReduceFunction::apply(state, static_cast<int64_t>(op), at::TensorList(tensors));
}

std::vector<at::Tensor> differentiable_all_gather(const CollectiveStatePtr& state, int64_t axis,
                                                  const std::vector<at::Tensor>& tensors) {
  if (!needs_gradient(tensors)) return state->group.all_gather(tensors, axis, state->options);
  return AllGatherFunction::apply(state, axis, at::TensorList(tensors));
}

std::vector<at::Tensor> differentiable_broadcast(const CollectiveStatePtr& state, int root,
                                                 const std::vector<at::Tensor>& tensors) {
  if (!needs_gradient(tensors)) return state->group.broadcast(tensors, root, state->options);
  return BroadcastFunction::apply(state, int64_t{root}, at::TensorList(tensors));
}

std::vector<at::Tensor> differentiable_reduce_scatter(const CollectiveStatePtr& state, ReduceOp op,
                                                      const std::vector<at::Tensor>& tensors) {
  if (needs_gradient(tensors)) {
    return ReduceScatterFunction::apply(state, static_cast<int64_t>(op), at::TensorList(tensors));
  }
  std::vector<at::Tensor> shares;
  for (const at::Tensor& tensor : tensors) shares.push_back(state->group.reduce_scatter(tensor, op, state->options));
  return shares;
}

std::vector<at::Tensor> differentiable_all_to_all(const CollectiveStatePtr& state,
                                                  const std::vector<int64_t>& split_sizes,
                                                  const std::vector<at::Tensor>& tensors) {
  if (!needs_gradient(tensors)) return state->group.all_to_all(tensors, split_sizes, state->options);
  return AllToAllFunction::apply(state, split_sizes, at::TensorList(tensors));
}

}  // namespace lockstep::detail
