#include "lockstep/comm/exchange_group.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "lockstep/comm/reduce/device_reduce.h"
#include "lockstep/comm/reduce/one_pass.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/stream_order.h"

namespace lockstep::comm {
namespace {

bool on_cpu(at::TensorList tensors) { return tensors.empty() || tensors[0].is_cpu(); }

/// Reduces the part [begin, end) of the concatenation, in bytes, over `flats` into the outputs of `targets`.
void reduce_part(std::span<const FlatTensors* const> flats, std::span<const FlatTensors* const> targets, ReduceOp op,
                 int64_t begin, int64_t end) {
  c10::SmallVector<const void*, 16> inputs(flats.size());
  c10::SmallVector<void*, 16> outputs(targets.size());
  const auto pieces = flats[0]->pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& piece = pieces[i];
    const auto width = static_cast<int64_t>(c10::elementSize(piece.dtype));
    const int64_t from = std::max(begin - piece.offset, int64_t(0));
    const int64_t to = std::min(end - piece.offset, piece.count * width);
    if (from >= to) continue;
    for (size_t r = 0; r < flats.size(); ++r) inputs[r] = flats[r]->pieces()[i].input + from;
    for (size_t r = 0; r < targets.size(); ++r) outputs[r] = targets[r]->pieces()[i].output + from;
    const auto kernel = reduce_kernel(piece.dtype, op, flats.size());
    kernel({inputs.data(), inputs.size()}, {outputs.data(), outputs.size()}, (to - from) / width);
  }
}

/// Ranks are threads of one process: each publishes pointers to its tensors.
class LocalGroup final : public ExchangeGroup {
 public:
  using Events = std::shared_ptr<std::vector<RankEvents>>;

  LocalGroup(std::shared_ptr<Rendezvous> rendezvous, Events events, int rank)
      : rendezvous_(std::move(rendezvous)), events_(std::move(events)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  const std::string& name() const override { return rendezvous_->name(); }

 protected:
  bool orders_streams() const override { return true; }

  void run_collective(const CollectiveCall& call, const FlatTensors* flat, const CommunicationOptions& options,
                      c10::function_ref<void(const PublishedCalls&)> work) override {
    CollectiveCall mine = call;
    mine.payload = const_cast<FlatTensors*>(flat);
    StreamOrder order(*events_, rank_, mine);
    {
      CollectiveScope scope(*rendezvous_, rank_, mine, options.timeout());
      c10::SmallVector<const FlatTensors*, 16> flats;
      if (flat != nullptr) {
        for (const CollectiveCall* other : scope.calls())
          flats.push_back(static_cast<const FlatTensors*>(other->payload));
      }
      scope.run([&] { order.run([&] { work({scope.calls(), {flats.data(), flats.size()}}); }); });
    }
    order.end();
  }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  Events events_;
  int rank_;
};

}  // namespace

int64_t part_begin(int64_t bytes, int rank, int size) {
  const int64_t lines = bytes / FlatTensors::kAlignment;
  return (lines / size * rank + std::min<int64_t>(rank, lines % size)) * FlatTensors::kAlignment;
}

void ExchangeGroup::do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                                  const CommunicationOptions& options) {
  reduce({.operation = "all_reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op}, options);
}

std::vector<at::Tensor> ExchangeGroup::do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                                            const CommunicationOptions& options) {
  const CollectiveCall call{.operation = "all_reduce", .inputs = inputs, .reduce_op = op};
  return exchange(call, options, [&](std::span<const CollectiveCall* const> calls, size_t i) {
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
  wait_for_device(inputs);
  const CollectiveCall call{
      .operation = "broadcast", .inputs = inputs, .outputs = outputs, .root = root, .only_root_is_read = true};
  run_collective(call, nullptr, options, [&](const PublishedCalls& all) {
    const auto source = all.calls[static_cast<size_t>(root)]->inputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].is_same(source[i])) outputs[i].copy_(source[i]);
    }
    wait_for_device(outputs);
  });
}

std::vector<at::Tensor> ExchangeGroup::do_all_gather(at::TensorList inputs, int64_t dim,
                                                     const CommunicationOptions& options) {
  const auto caller = CallerOperation::current_or("all_gather");
  const CollectiveCall call{
      .operation = caller.name, .inputs = inputs, .reduce_op = caller.reduce_op, .free_dimension = dim};
  return exchange(call, options, [&](std::span<const CollectiveCall* const> calls, size_t i) {
    return concatenate(calls, i, dim, inputs[i].device());
  });
}

std::vector<at::Tensor> ExchangeGroup::do_gather(at::TensorList inputs, int64_t dim, int root,
                                                 const CommunicationOptions& options) {
  const CollectiveCall call{.operation = "gather", .inputs = inputs, .root = root, .free_dimension = dim};
  auto results = exchange(call, options, [&](std::span<const CollectiveCall* const> calls, size_t i) {
    return rank() == root ? concatenate(calls, i, dim, inputs[i].device()) : at::Tensor();
  });
  if (rank() != root) results.clear();
  return results;
}

void ExchangeGroup::do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                      const CommunicationOptions& options) {
  const auto share = row_share(input.size(0), rank(), size());
  CollectiveCall call{.operation = "reduce_scatter", .inputs = at::TensorList(&input, 1), .reduce_op = op};
  if (may_reduce_in_one_pass(call.inputs, op)) return scatter_in_one_pass(call, output, share, options);
  if (!input.is_cpu()) {
    const at::NoGradGuard no_grad;
    const auto whole = exchange(call, options, [&](std::span<const CollectiveCall* const> calls, size_t i) {
      return reduce_on_device(calls, i, op, input.device());
    });
    output.copy_(whole[0].narrow(0, share.begin, share.count));
    return;
  }
  const FlatTensors flat(call.inputs, {});
  run_collective(call, &flat, options, [&](const PublishedCalls& all) {
    if (output.numel() == 0) return;
    const int64_t skip = share.begin * (input.numel() / input.size(0)) * static_cast<int64_t>(input.element_size());
    c10::SmallVector<const void*, 16> parts;
    for (const FlatTensors* other : all.flats) parts.push_back(other->pieces()[0].input + skip);
    void* const target = output.data_ptr();
    reduce_kernel(input.scalar_type(), op, parts.size())({parts.data(), parts.size()}, {&target, 1}, output.numel());
  });
}

std::vector<at::Tensor> ExchangeGroup::do_all_to_all(at::TensorList inputs, const RowCounts& sent, RowCounts& received,
                                                     const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  const auto members = static_cast<size_t>(size());
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    int64_t begin = 0;
    for (const int64_t rows : sent[i]) {
      parts.push_back(inputs[i].detach().narrow(0, begin, rows));
      begin += rows;
    }
  }
  wait_for_device(inputs);
  const CollectiveCall call{
      .operation = "all_to_all", .inputs = parts, .free_dimension = 0, .readers = members, .divided = inputs};
  std::vector<at::Tensor> results;
  received.assign(inputs.size(), {});
  run_collective(call, nullptr, options, [&](const PublishedCalls& all) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::vector<at::Tensor> own;
      for (const CollectiveCall* other : all.calls) {
        own.push_back(other->inputs[i * members + static_cast<size_t>(rank())].to(inputs[i].device()));
        received[i].push_back(own.back().size(0));
      }
      results.push_back(at::cat(own));
    }
    wait_for_device(inputs);
  });
  return results;
}

std::shared_ptr<GroupImpl> ExchangeGroup::do_within(const std::shared_ptr<GroupImpl>& self,
                                                    std::shared_ptr<const RankGroups> groups) {
  return make_group_within(std::static_pointer_cast<ExchangeGroup>(self), std::move(groups));
}

void ExchangeGroup::do_barrier(const CommunicationOptions& options) {
  run_collective({.operation = "barrier"}, nullptr, options, [](const PublishedCalls&) {});
}

void ExchangeGroup::reduce(const CollectiveCall& call, const CommunicationOptions& options) {
  if (!on_cpu(call.inputs)) return reduce_on_devices(call, options);
  const FlatTensors flat(call.inputs, call.outputs);
  reduce_on_cpu(call, flat, options);
  flat.deliver();
}

void ExchangeGroup::reduce_through_cpu(const CollectiveCall& call, const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& input : call.inputs) copies.push_back(input.detach().to(at::kCPU));
  CollectiveCall on_cpu = call;
  on_cpu.inputs = copies;
  on_cpu.outputs = call.outputs.empty() ? at::ArrayRef<at::Tensor>() : at::ArrayRef<at::Tensor>(copies);
  const FlatTensors flat(on_cpu.inputs, on_cpu.outputs);
  reduce_on_cpu(on_cpu, flat, options);
  flat.deliver();
  for (size_t i = 0; i < call.outputs.size(); ++i) call.outputs[i].copy_(copies[i]);
}

void ExchangeGroup::reduce_on_devices(const CollectiveCall& call, const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  if (may_reduce_in_one_pass(call.inputs, call.reduce_op)) return reduce_in_one_pass(call, options);
  const auto results = exchange(call, options, [&](std::span<const CollectiveCall* const> calls, size_t i) {
    return call.outputs.empty() ? at::Tensor() : reduce_on_device(calls, i, call.reduce_op, call.outputs[i].device());
  });
  for (size_t i = 0; i < call.outputs.size(); ++i) call.outputs[i].copy_(results[i]);
}

void ExchangeGroup::reduce_on_cpu(const CollectiveCall& call, const FlatTensors& flat,
                                  const CommunicationOptions& options) {
  run_collective(call, &flat, options, [&](const PublishedCalls& all) {
    const auto targets = call.root < 0 ? all.flats : all.flats.subspan(static_cast<size_t>(call.root), 1);
    reduce_part(all.flats, targets, call.reduce_op, part_begin(flat.bytes(), rank(), size()),
                part_begin(flat.bytes(), rank() + 1, size()));
  });
}

void ExchangeGroup::wait_for_device(at::TensorList tensors) const {
  if (!orders_streams()) synchronize(tensors);
}

bool ExchangeGroup::may_reduce_in_one_pass(at::TensorList inputs, ReduceOp op) const {
  return orders_streams() && has_one_pass(inputs, op, static_cast<size_t>(size()));
}

/// Ranks decide alike whether their devices can do it: they see the same calls.
void ExchangeGroup::reduce_in_one_pass(const CollectiveCall& call, const CommunicationOptions& options) {
  const FlatTensors flat(call.inputs, call.outputs);
  std::vector<at::Tensor> copies;
  bool in_one_pass = false;
  run_collective(call, &flat, options, [&](const PublishedCalls& all) {
    in_one_pass = can_reduce_in_one_pass(all.calls, call.reduce_op);
    if (in_one_pass) {
      const auto targets = call.root < 0 ? all.flats : all.flats.subspan(static_cast<size_t>(call.root), 1);
      return reduce_part_in_one_pass(call.inputs[0].device(), all.flats, targets, call.reduce_op,
                                     part_begin(flat.bytes(), rank(), size()),
                                     part_begin(flat.bytes(), rank() + 1, size()));
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      copies.push_back(reduce_on_device(all.calls, i, call.reduce_op, call.outputs[i].device()));
    }
  });
  if (in_one_pass) flat.deliver();
  for (size_t i = 0; i < copies.size(); ++i) call.outputs[i].copy_(copies[i]);
}

void ExchangeGroup::scatter_in_one_pass(const CollectiveCall& call, const at::Tensor& output, RowShare share,
                                        const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  const FlatTensors flat(call.inputs, {});
  at::Tensor whole;
  run_collective(call, &flat, options, [&](const PublishedCalls& all) {
    if (!can_reduce_in_one_pass(all.calls, call.reduce_op)) {
      whole = reduce_on_device(all.calls, 0, call.reduce_op, output.device());
    } else if (output.numel() > 0) {
      reduce_share_in_one_pass(all.flats, call.reduce_op, share.begin * (output.numel() / share.count), output);
    }
  });
  if (whole.defined()) output.copy_(whole.narrow(0, share.begin, share.count));
}

/// Makes one new tensor for each input from the inputs of all ranks. Where streams are not ordered, device work is
/// complete before any rank returns.
template <typename Make>
std::vector<at::Tensor> ExchangeGroup::exchange(const CollectiveCall& call, const CommunicationOptions& options,
                                                Make make) {
  const at::NoGradGuard no_grad;
  wait_for_device(call.inputs);
  std::vector<at::Tensor> results;
  results.reserve(call.inputs.size());
  run_collective(call, nullptr, options, [&](const PublishedCalls& all) {
    for (size_t i = 0; i < call.inputs.size(); ++i) results.push_back(make(all.calls, i));
    wait_for_device(call.inputs);
  });
  return results;
}

std::vector<Group> make_local_groups(const std::shared_ptr<Rendezvous>& rendezvous) {
  std::vector<Group> groups;
  const auto events = std::make_shared<std::vector<RankEvents>>(static_cast<size_t>(rendezvous->size()));
  for (int rank = 0; rank < rendezvous->size(); ++rank) {
    groups.emplace_back(std::make_shared<LocalGroup>(rendezvous, events, rank));
  }
  return groups;
}

}  // namespace lockstep::comm
