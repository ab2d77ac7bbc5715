#include "lockstep/comm/exchange_group.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "lockstep/comm/group.h"
#include "lockstep/comm/reduce/device_reduce.h"
#include "lockstep/comm/reduce/reduce_kernel.h"

namespace lockstep::comm {
namespace {

bool on_cpu(at::TensorList tensors) { return tensors.empty() || tensors[0].is_cpu(); }

}  // namespace

int64_t part_begin(int64_t bytes, int rank, int size) {
  const int64_t lines = bytes / Parcel::kAlignment;
  return (lines / size * rank + std::min<int64_t>(rank, lines % size)) * Parcel::kAlignment;
}

void ExchangeGroup::do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                                  const CommunicationOptions& options) {
  reduce({.operation = "all_reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op}, options);
}

std::vector<at::Tensor> ExchangeGroup::do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                                            const CommunicationOptions& options) {
  const Call call{.operation = "all_reduce", .inputs = inputs, .reduce_op = op};
  return exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
    return concatenate_sparse(calls, i, op, inputs[i].device());
  });
}

void ExchangeGroup::do_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                              const CommunicationOptions& options) {
  reduce({.operation = "reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op, .root = root}, options);
}

void ExchangeGroup::do_broadcast(at::TensorList inputs, at::TensorList outputs, int root,
                                 const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  synchronize(inputs);
  const Call call{
      .operation = "broadcast", .inputs = inputs, .outputs = outputs, .root = root, .only_root_is_read = true};
  meet(call, nullptr, options, [&](const Gathering& all) {
    const auto source = all.calls[static_cast<size_t>(root)]->inputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].is_same(source[i])) outputs[i].copy_(source[i]);
    }
    synchronize(outputs);
  });
}

std::vector<at::Tensor> ExchangeGroup::do_all_gather(at::TensorList inputs, int64_t dim,
                                                     const CommunicationOptions& options) {
  const Call call{.operation = "all_gather", .inputs = inputs, .free_dimension = dim};
  return exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
    return concatenate(calls, i, dim, inputs[i].device());
  });
}

std::vector<at::Tensor> ExchangeGroup::do_gather(at::TensorList inputs, int64_t dim, int root,
                                                 const CommunicationOptions& options) {
  const Call call{.operation = "gather", .inputs = inputs, .root = root, .free_dimension = dim};
  auto results = exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
    return rank() == root ? concatenate(calls, i, dim, inputs[i].device()) : at::Tensor();
  });
  if (rank() != root) results.clear();
  return results;
}

void ExchangeGroup::do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                      const CommunicationOptions& options) {
  const auto share = row_share(input.size(0), rank(), size());
  const Call call{.operation = "reduce_scatter", .inputs = at::TensorList(&input, 1), .reduce_op = op};
  if (!input.is_cpu()) {
    const at::NoGradGuard no_grad;
    const auto whole = exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
      return reduce_on_device(calls, i, op, input.device());
    });
    output.copy_(whole[0].narrow(0, share.begin, share.count));
    return;
  }
  const Parcel parcel(call.inputs, {});
  meet(call, &parcel, options, [&](const Gathering& all) {
    if (output.numel() == 0) return;
    const int64_t skip = share.begin * (input.numel() / input.size(0)) * static_cast<int64_t>(input.element_size());
    c10::SmallVector<const void*, 16> parts;
    for (const Parcel* other : all.parcels) parts.push_back(other->pieces()[0].input + skip);
    void* const target = output.data_ptr();
    reduce_kernel(input.scalar_type(), op, parts.size())({parts.data(), parts.size()}, {&target, 1}, output.numel());
  });
}

void ExchangeGroup::do_barrier(const CommunicationOptions& options) {
  meet({.operation = "barrier"}, nullptr, options, [](const Gathering&) {});
}

void ExchangeGroup::reduce(const Call& call, const CommunicationOptions& options) {
  if (!on_cpu(call.inputs)) return reduce_on_devices(call, options);
  const Parcel parcel(call.inputs, call.outputs);
  reduce_on_cpu(call, parcel, options);
  parcel.deliver();
}

void ExchangeGroup::reduce_through_cpu(const Call& call, const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& input : call.inputs) copies.push_back(input.detach().to(at::kCPU));
  Call on_cpu = call;
  on_cpu.inputs = copies;
  on_cpu.outputs = call.outputs.empty() ? at::ArrayRef<at::Tensor>() : at::ArrayRef<at::Tensor>(copies);
  const Parcel parcel(on_cpu.inputs, on_cpu.outputs);
  reduce_on_cpu(on_cpu, parcel, options);
  parcel.deliver();
  for (size_t i = 0; i < call.outputs.size(); ++i) call.outputs[i].copy_(copies[i]);
}

void ExchangeGroup::reduce_on_devices(const Call& call, const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  const auto results = exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
    return call.outputs.empty() ? at::Tensor() : reduce_on_device(calls, i, call.reduce_op, call.outputs[i].device());
  });
  for (size_t i = 0; i < call.outputs.size(); ++i) call.outputs[i].copy_(results[i]);
}

void ExchangeGroup::reduce_on_cpu(const Call& call, const Parcel& parcel, const CommunicationOptions& options) {
  meet(call, &parcel, options, [&](const Gathering& all) {
    const auto targets = call.root < 0 ? all.parcels : all.parcels.subspan(static_cast<size_t>(call.root), 1);
    reduce_part(all.parcels, targets, call.reduce_op, part_begin(parcel.bytes(), rank(), size()),
                part_begin(parcel.bytes(), rank() + 1, size()));
  });
}

/// Makes one new tensor for each input out of the inputs of all ranks; device work is complete before anyone goes on.
template <typename Make>
std::vector<at::Tensor> ExchangeGroup::exchange(const Call& call, const CommunicationOptions& options, Make make) {
  const at::NoGradGuard no_grad;
  synchronize(call.inputs);
  std::vector<at::Tensor> results;
  results.reserve(call.inputs.size());
  meet(call, nullptr, options, [&](const Gathering& all) {
    for (size_t i = 0; i < call.inputs.size(); ++i) results.push_back(make(all.calls, i));
    synchronize(call.inputs);
  });
  return results;
}

}  // namespace lockstep::comm
