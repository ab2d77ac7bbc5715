#include "lockstep/strategy/reduce/cross_device_group.h"

#include <algorithm>
#include <exception>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/comm/reduce/device_reduce.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"

namespace lockstep::detail {
namespace {

/// What the first rank's `batch_reduce` has thrown. All ranks read it after the collective.
using SharedError = std::shared_ptr<std::exception_ptr>;

/// CrossDeviceOps do not sum booleans.
bool any_bool(at::TensorList tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.scalar_type() == at::kBool; });
}

class CrossDeviceGroup final : public comm::GroupImpl {
 public:
  CrossDeviceGroup(comm::Group host, std::shared_ptr<comm::Rendezvous> rendezvous,
                   std::shared_ptr<const CrossDeviceOps> ops)
      : host_(std::move(host)), rendezvous_(std::move(rendezvous)), ops_(std::move(ops)) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const std::string& name() const override { return host_.name(); }

  void do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                     const CommunicationOptions& options) override {
    if (any_bool(inputs)) return copy(host_.all_reduce(inputs, op, options), outputs);
    reduce_together({.operation = "all_reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op}, options);
  }

  void do_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                 const CommunicationOptions& options) override {
    if (any_bool(inputs)) return copy(host_.reduce(inputs, root, op, options), outputs);
    reduce_together({.operation = "reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op, .root = root},
                    options);
  }

  std::vector<at::Tensor> do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                               const CommunicationOptions& options) override {
    return host_.all_reduce(inputs, op, options);
  }

  void do_broadcast(at::TensorList inputs, at::TensorList outputs, int root,
                    const CommunicationOptions& options) override {
    copy(host_.broadcast(inputs, root, options), outputs);
  }

  std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                        const CommunicationOptions& options) override {
    return host_.all_gather(inputs, dim, options);
  }

  std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                    const CommunicationOptions& options) override {
    return host_.gather(inputs, dim, root, options);
  }

  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override {
    const at::Tensor whole = at::empty(input.sizes(), input.options().requires_grad(false));
    do_all_reduce(at::TensorList(&input, 1), at::TensorList(&whole, 1), op, options);
    const auto share = comm::row_share(input.size(0), rank(), size());
    copy({whole.narrow(0, share.begin, share.count)}, at::TensorList(&output, 1));
  }

  std::vector<at::Tensor> do_all_to_all(at::TensorList inputs, const comm::RowCounts& sent, comm::RowCounts& received,
                                        const CommunicationOptions& options) override {
    return host_.impl()->do_all_to_all(inputs, sent, received, options);
  }

  std::shared_ptr<comm::GroupImpl> do_within(const std::shared_ptr<comm::GroupImpl>& /*self*/,
                                             std::shared_ptr<const comm::RankGroups> groups) override {
    return host_.within(*groups).impl();
  }

  void do_barrier(const CommunicationOptions& options) override { host_.barrier(options); }

 private:
  using Calls = std::span<const comm::CollectiveCall* const>;

  void reduce_together(comm::CollectiveCall call, const CommunicationOptions& options) {
    const at::NoGradGuard no_grad;
    comm::synchronize(call.inputs);
    SharedError error = std::make_shared<std::exception_ptr>();
    call.payload = &error;
    call.payload_type = &typeid(SharedError);
    {
      comm::CollectiveScope scope(*rendezvous_, rank(), call, options.timeout());
      const SharedError of_first = *static_cast<const SharedError*>(scope.calls()[0]->payload);
      if (rank() == 0) {
        try {
          reduce_calls(scope.calls(), options);
        } catch (...) {
          *of_first = std::current_exception();
        }
      }
      scope.finish();
      error = of_first;
    }
    if (*error) std::rethrow_exception(*error);
  }

  void reduce_calls(Calls calls, const CommunicationOptions& options) const {
    std::vector<CrossDeviceOps::ValueAndDestinations> values;
    for (size_t i = 0; i < calls[0]->inputs.size(); ++i) {
      std::vector<at::Tensor> components;
      for (const comm::CollectiveCall* call : calls) components.push_back(call->inputs[i].detach());
      const PerReplica<at::Tensor> value(components);
      values.emplace_back(value, Destinations(value));
    }
    const auto results = ops_->batch_reduce(calls[0]->reduce_op, values, options);
    for (size_t r = 0; r < calls.size(); ++r) {
      const auto& outputs = calls[r]->outputs;
      for (size_t i = 0; i < outputs.size(); ++i) {
        const at::Tensor& reduced = results[i].at(static_cast<int64_t>(r));
        LOCKSTEP_CHECK_VALUE(reduced.sizes() == outputs[i].sizes(), "[", ops_->name(),
                             "] a reduced value must have the shape of its components: shape=", outputs[i].sizes(),
                             ", returned=", reduced.sizes());
        outputs[i].detach().copy_(reduced);
      }
      comm::synchronize(outputs);
    }
  }

  static void copy(const std::vector<at::Tensor>& results, at::TensorList outputs) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].detach().copy_(results[i]);
  }

  comm::Group host_;
  std::shared_ptr<comm::Rendezvous> rendezvous_;
  std::shared_ptr<const CrossDeviceOps> ops_;
};

}  // namespace

comm::Group cross_device_group(const comm::Group& host, std::shared_ptr<comm::Rendezvous> rendezvous,
                               std::shared_ptr<const CrossDeviceOps> ops) {
  return comm::Group(std::make_shared<CrossDeviceGroup>(host, std::move(rendezvous), std::move(ops)));
}

}  // namespace lockstep::detail
