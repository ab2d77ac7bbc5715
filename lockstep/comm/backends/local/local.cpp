#include "lockstep/comm/backends/local/local.h"

#include <ATen/core/grad_mode.h>

#include "lockstep/comm/backends/local/device_reduce.h"
#include "lockstep/comm/backends/local/parcel.h"
#include "lockstep/comm/backends/local/reduce_kernel.h"
#include "lockstep/comm/group_impl.h"

namespace lockstep::comm {
namespace {

using Parcels = c10::SmallVector<const Parcel*, 16>;

bool on_cpu(at::TensorList tensors) { return tensors.empty() || tensors[0].is_cpu(); }

Parcels parcels_of(std::span<const Call* const> calls) {
  Parcels parcels;
  for (const Call* call : calls) parcels.push_back(static_cast<const Parcel*>(call->payload));
  return parcels;
}

std::span<const Parcel* const> view(const Parcels& parcels) { return {parcels.data(), parcels.size()}; }

class LocalGroup : public GroupImpl {
 public:
  LocalGroup(std::shared_ptr<Rendezvous> rendezvous, int rank) : rendezvous_(std::move(rendezvous)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  const std::string& name() const override { return rendezvous_->name(); }

  void do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                     const CommunicationOptions& options) override {
    reduce_to_targets({.operation = "all_reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op}, options);
  }

  std::vector<at::Tensor> do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                               const CommunicationOptions& options) override {
    const Call call{.operation = "all_reduce", .inputs = inputs, .reduce_op = op};
    return exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
      return concatenate_sparse(calls, i, op, inputs[i].device());
    });
  }

  void do_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                 const CommunicationOptions& options) override {
    reduce_to_targets({.operation = "reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op, .root = root},
                      options);
  }

  void do_broadcast(at::TensorList inputs, at::TensorList outputs, int root,
                    const CommunicationOptions& options) override {
    const at::NoGradGuard no_grad;
    synchronize(inputs);
    const Call call{.operation = "broadcast", .inputs = inputs, .outputs = outputs, .root = root};
    Meeting meeting(*rendezvous_, rank_, call, options.timeout());
    const auto source = meeting.calls()[static_cast<size_t>(root)]->inputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].is_same(source[i])) outputs[i].copy_(source[i]);
    }
    synchronize(outputs);
    meeting.finish();
  }

  std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                        const CommunicationOptions& options) override {
    const Call call{.operation = "all_gather", .inputs = inputs, .free_dimension = dim};
    return exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
      return concatenate(calls, i, dim, inputs[i].device());
    });
  }

  std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                    const CommunicationOptions& options) override {
    const Call call{.operation = "gather", .inputs = inputs, .root = root, .free_dimension = dim};
    auto results = exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
      return rank_ == root ? concatenate(calls, i, dim, inputs[i].device()) : at::Tensor();
    });
    if (rank_ != root) results.clear();
    return results;
  }

  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override {
    const auto share = row_share(input.size(0), rank_, size());
    Call call{.operation = "reduce_scatter", .inputs = at::TensorList(&input, 1), .reduce_op = op};
    if (!input.is_cpu()) {
      const at::NoGradGuard no_grad;
      const auto whole = exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
        return reduce_on_device(calls, i, op, input.device());
      });
      output.copy_(whole[0].narrow(0, share.begin, share.count));
      return;
    }
    const Parcel parcel(call.inputs, {});
    call.payload = const_cast<Parcel*>(&parcel);
    Meeting meeting(*rendezvous_, rank_, call, options.timeout());
    if (output.numel() > 0) {
      const int64_t skip = share.begin * (input.numel() / input.size(0)) * static_cast<int64_t>(input.element_size());
      c10::SmallVector<const void*, 16> parts;
      for (const Call* other : meeting.calls()) {
        parts.push_back(static_cast<const Parcel*>(other->payload)->pieces()[0].input + skip);
      }
      void* const target = output.data_ptr();
      reduce_kernel(input.scalar_type(), op, parts.size())({parts.data(), parts.size()}, {&target, 1}, output.numel());
    }
    meeting.finish();
  }

  void do_barrier(const CommunicationOptions& options) override {
    const Call call{.operation = "barrier"};
    Meeting(*rendezvous_, rank_, call, options.timeout()).finish();
  }

 private:
  /// Where the part of `rank` begins in a concatenation of `bytes`.
  int64_t cut(int64_t bytes, int rank) const {
    const int64_t lines = bytes / Parcel::kAlignment;
    return lines / size() * rank * Parcel::kAlignment + std::min<int64_t>(rank, lines % size()) * Parcel::kAlignment;
  }

  /// Reduces, each rank its part, into the outputs of the call's root, or of all ranks where it has none.
  void reduce_to_targets(Call call, const CommunicationOptions& options) {
    if (!on_cpu(call.inputs)) {
      reduce_anywhere(call, call.outputs, options);
      return;
    }
    Parcel parcel(call.inputs, call.outputs);
    call.payload = &parcel;
    Meeting meeting(*rendezvous_, rank_, call, options.timeout());
    const auto parcels = parcels_of(meeting.calls());
    const auto all = view(parcels);
    const auto targets = call.root < 0 ? all : all.subspan(static_cast<size_t>(call.root), 1);
    reduce_part(all, targets, call.reduce_op, cut(parcel.bytes(), rank_), cut(parcel.bytes(), rank_ + 1));
    meeting.finish();
    parcel.deliver();
  }

  void reduce_anywhere(const Call& call, at::TensorList outputs, const CommunicationOptions& options) {
    const at::NoGradGuard no_grad;
    const auto results = exchange(call, options, [&](std::span<const Call* const> calls, size_t i) {
      return outputs.empty() ? at::Tensor() : reduce_on_device(calls, i, call.reduce_op, outputs[i].device());
    });
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(results[i]);
  }

  /// Makes one new tensor for each input out of the inputs of all ranks; device work is complete before anyone goes on.
  template <typename Make>
  std::vector<at::Tensor> exchange(const Call& call, const CommunicationOptions& options, Make make) {
    const at::NoGradGuard no_grad;
    synchronize(call.inputs);
    Meeting meeting(*rendezvous_, rank_, call, options.timeout());
    std::vector<at::Tensor> results;
    results.reserve(call.inputs.size());
    for (size_t i = 0; i < call.inputs.size(); ++i) results.push_back(make(meeting.calls(), i));
    synchronize(call.inputs);
    meeting.finish();
    return results;
  }

  std::shared_ptr<Rendezvous> rendezvous_;
  int rank_;
};

}  // namespace

std::vector<Group> make_local_groups(const std::shared_ptr<Rendezvous>& rendezvous) {
  std::vector<Group> groups;
  for (int rank = 0; rank < rendezvous->size(); ++rank) {
    groups.emplace_back(std::make_shared<LocalGroup>(rendezvous, rank));
  }
  return groups;
}

}  // namespace lockstep::comm
