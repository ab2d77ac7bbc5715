#include "lockstep/strategy/tpu/traced_group.h"

#include <chrono>
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/xla/engine/collectives.h"

namespace lockstep::detail {
namespace {

bool is_traced(at::TensorList tensors) {
  return !tensors.empty() && tensors[0].device().type() == c10::DeviceType::XLA;
}

class TracedGroup final : public comm::GroupImpl {
 public:
  explicit TracedGroup(comm::Group host) : host_(std::move(host)) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const std::string& name() const override { return host_.name(); }

  void do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                     const CommunicationOptions& options) override {
    if (!is_traced(inputs)) return copy(host_.all_reduce(inputs, op, options), outputs);
    const auto reduce = [&](const at::Tensor& t) { return all_reduced(t, op); };
    copy(traced(reduce, inputs, "all_reduce", op.name(), options), outputs);
  }

  std::vector<at::Tensor> do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                               const CommunicationOptions& options) override {
    return host_.all_reduce(inputs, op, options);
  }

  void do_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                 const CommunicationOptions& options) override {
    const auto reduce = [&](const at::Tensor& t) { return all_reduced(t, op); };
    const auto reduced = is_traced(inputs) ? traced(reduce, inputs, "reduce", c10::str(op, ", root ", root), options)
                                           : host_.reduce(inputs, root, op, options);
    if (rank() == root) copy(reduced, outputs);
  }

  void do_broadcast(at::TensorList inputs, at::TensorList outputs, int root,
                    const CommunicationOptions& options) override {
    if (!is_traced(inputs)) return copy(host_.broadcast(inputs, root, options), outputs);
    const auto from_root = [&](const at::Tensor& t) { return xla::broadcast_from(t, root, size()); };
    copy(traced(from_root, inputs, "broadcast", c10::str("root ", root), options), outputs);
  }

  std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                        const CommunicationOptions& options) override {
    if (!is_traced(inputs)) return host_.all_gather(inputs, dim, options);
    const auto gather = [&](const at::Tensor& t) { return xla::all_gathered(t, dim, size()); };
    return traced(gather, inputs, "all_gather", c10::str("dim ", dim), options);
  }

  std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                    const CommunicationOptions& options) override {
    if (!is_traced(inputs)) return host_.gather(inputs, dim, root, options);
    const auto gather = [&](const at::Tensor& t) { return xla::all_gathered(t, dim, size()); };
    auto gathered = traced(gather, inputs, "gather", c10::str("dim ", dim, ", root ", root), options);
    return rank() == root ? gathered : std::vector<at::Tensor>{};
  }

  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override {
    if (!is_traced(input)) return copy({host_.reduce_scatter(input, op, options)}, output);
    // The index of the share is an input of the program, so that all replicas have the same program.
    const auto share = comm::row_share(input.size(0), rank(), size());
    const at::Tensor rows = at::arange(share.count, input.options().dtype(at::kLong)) + share.begin;
    const auto reduce = [&](const at::Tensor& t) { return all_reduced(t, op).index_select(0, rows); };
    copy(traced(reduce, input, "reduce_scatter", op.name(), options), output);
  }

  void do_barrier(const CommunicationOptions& options) override { host_.barrier(options); }

 private:
  at::Tensor all_reduced(const at::Tensor& tensor, ReduceOp op) const { return xla::all_reduced(tensor, op, size()); }

  /// Applies a collective to each tensor, and notes the call with what replicas must agree on.
  template <class F>
  static std::vector<at::Tensor> traced(F&& collective, at::TensorList inputs, const char* operation,
                                        std::string_view agreed, const CommunicationOptions& options) {
    if (const xla::LazyStorage* storage = xla::storage_of(inputs[0])) {
      const bool is_inside = storage->device().run;
      LOCKSTEP_CHECK_CONTEXT(is_inside, "[", operation,
                             "] replicas make collectives inside `run`, and with them their ",
                             "gradients: device=", inputs[0].device(), "; call backward() in the function of `run`");
      const auto owner = comm::CollectiveOwner::current();
      const std::string purpose = owner.kind.empty() ? "" : c10::str(owner, ", ");
      xla::CollectiveNote note{c10::str(operation, "(", purpose, agreed, ")"), options.timeout()};
      if (note.timeout.count() > 0) note.made = std::chrono::steady_clock::now();
      storage->device().note_collective(std::move(note));
    }
    std::vector<at::Tensor> results;
    for (const at::Tensor& input : inputs) results.push_back(collective(input));
    return results;
  }

  static void copy(const std::vector<at::Tensor>& results, at::TensorList outputs) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].detach().copy_(results[i]);
  }

  comm::Group host_;
};

}  // namespace

comm::Group traced_group(const comm::Group& host) { return comm::Group(std::make_shared<TracedGroup>(host)); }

}  // namespace lockstep::detail
