#include "lockstep/comm/device_group.h"

#include <algorithm>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/device_reduction.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {
namespace {

using Kind = DeviceOperation::Kind;

constexpr std::string_view kCarrier = "NCCL";

/// A dense tensor whose bytes are its values in their order.
at::Tensor plain(const at::Tensor& tensor) { return tensor.detach().resolve_conj().resolve_neg().contiguous(); }

DeviceOperation bytes_of(Kind kind, const at::Tensor& input, const at::Tensor& output, int peer) {
  const at::Tensor& any = input.defined() ? input : output;
  return {.kind = kind,
          .input = input.defined() ? input.data_ptr() : nullptr,
          .output = output.defined() ? output.data_ptr() : nullptr,
          .count = any.nbytes(),
          .dtype = at::kByte,
          .peer = peer};
}

std::vector<int64_t> with_size(at::IntArrayRef sizes, int64_t dim, int64_t size) {
  auto changed = sizes.vec();
  changed[static_cast<size_t>(dim)] = size;
  return changed;
}

class DeviceGroup final : public GroupImpl {
 public:
  DeviceGroup(std::shared_ptr<GroupImpl> host, std::shared_ptr<DeviceCollectives> collectives, int local,
              AgreeOnCall agree)
      : host_(std::move(host)), collectives_(std::move(collectives)), local_(local), agree_(std::move(agree)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  bool uses_nccl() const override { return true; }

  void begin_run() override {
    host_->begin_run();
    if (local_ == 0) collectives_->renew();
  }
  void leave(const std::exception_ptr& cause) override {
    host_->leave(cause);
    if (cause) collectives_->give_up_soon();
  }
  void check_queued_work(const char* asks) override {
    host_->check_queued_work(asks);
    collectives_->check(asks);
  }

  void do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                     const CommunicationOptions& options) override {
    if (!reduces("all_reduce", inputs, options)) return host_->do_all_reduce(inputs, outputs, op, options);
    const at::NoGradGuard no_grad;
    const CollectiveCall call{
        .operation = "all_reduce", .inputs = inputs, .outputs = outputs, .reduce_op = op, .carrier = kCarrier};
    DeviceReduction reduction(inputs, outputs, op, size());
    run(call, options, reduction.operations(Kind::AllReduce, -1));
    reduction.finish();
  }

  void do_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                 const CommunicationOptions& options) override {
    if (!reduces("reduce", inputs, options)) return host_->do_reduce(inputs, outputs, op, root, options);
    const at::NoGradGuard no_grad;
    const CollectiveCall call{.operation = "reduce",
                              .inputs = inputs,
                              .outputs = outputs,
                              .reduce_op = op,
                              .root = root,
                              .carrier = kCarrier};
    DeviceReduction reduction(inputs, outputs, op, size());
    run(call, options, reduction.operations(Kind::Reduce, root));
    reduction.finish();
  }

  std::vector<at::Tensor> do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                               const CommunicationOptions& options) override {
    return host_->do_all_reduce_sparse(inputs, op, options);
  }

  void do_broadcast(at::TensorList inputs, at::TensorList outputs, int root,
                    const CommunicationOptions& options) override {
    if (!moves(inputs)) return host_->do_broadcast(inputs, outputs, root, options);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> kept;
    std::vector<DeviceOperation> operations;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_plain = outputs[i].is_contiguous() && !outputs[i].is_conj() && !outputs[i].is_neg();
      const at::Tensor to = is_plain ? outputs[i].detach() : at::empty(outputs[i].sizes(), outputs[i].options());
      kept.push_back(to);
      kept.push_back(rank() == root ? plain(inputs[i]) : to);
      operations.push_back(bytes_of(Kind::Broadcast, kept.back(), to, root));
    }
    run({.operation = "broadcast",
         .inputs = inputs,
         .outputs = outputs,
         .root = root,
         .only_root_is_read = true,
         .carrier = kCarrier},
        options, operations);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!kept[2 * i].is_alias_of(outputs[i])) outputs[i].detach().copy_(kept[2 * i]);
    }
  }

  std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                        const CommunicationOptions& options) override {
    if (!moves(inputs)) return host_->do_all_gather(inputs, dim, options);
    const auto caller = CallerOperation::current_or("all_gather");
    return gather({.operation = caller.name,
                   .inputs = inputs,
                   .reduce_op = caller.reduce_op,
                   .free_dimension = dim,
                   .carrier = kCarrier},
                  options);
  }

  std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                    const CommunicationOptions& options) override {
    if (!moves(inputs)) return host_->do_gather(inputs, dim, root, options);
    return gather({.operation = "gather", .inputs = inputs, .root = root, .free_dimension = dim, .carrier = kCarrier},
                  options);
  }

  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override {
    const at::TensorList inputs(&input, 1);
    if (!reduces("reduce_scatter", inputs, options)) return host_->do_reduce_scatter(input, output, op, options);
    const at::NoGradGuard no_grad;
    DeviceReduction reduction(inputs, at::TensorList(&output, 1), op, size());
    const CollectiveCall call{.operation = "reduce_scatter", .inputs = inputs, .reduce_op = op, .carrier = kCarrier};
    run(call, options, reduction.scatter_operations(rank()));
    reduction.finish();
  }

  std::vector<at::Tensor> do_all_to_all(at::TensorList inputs, const RowCounts& sent, RowCounts& received,
                                        const CommunicationOptions& options) override;

  std::shared_ptr<GroupImpl> do_within(const std::shared_ptr<GroupImpl>& /*self*/,
                                       std::shared_ptr<const RankGroups> groups) override {
    return host_->do_within(host_, std::move(groups));
  }
  void do_barrier(const CommunicationOptions& options) override { host_->do_barrier(options); }

 private:
  /// Whether the engine moves the bytes of these tensors. They are on the rank's GPU.
  bool moves(at::TensorList inputs) const {
    return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](const at::Tensor& tensor) {
      return tensor.is_cuda() && tensor.device().index() == device();
    });
  }
  int device() const { return collectives_->devices()[static_cast<size_t>(local_)]; }
  bool reduces(const char* operation, at::TensorList inputs, const CommunicationOptions& options) const;

  void run(const CollectiveCall& call, const CommunicationOptions& options,
           const std::vector<DeviceOperation>& operations) {
    agree_(call, options, [&] { queue(call, options, operations); });
  }
  void queue(const CollectiveCall& call, const CommunicationOptions& options,
             const std::vector<DeviceOperation>& operations) {
    const bool has_work = std::any_of(operations.begin(), operations.end(),
                                      [](const DeviceOperation& operation) { return operation.count > 0; });
    if (!has_work) return;
    const RankOperations work{local_, operations};
    collectives_->run({&work, 1}, {c10::str(call.describe(), ", rank ", rank()), options.timeout()});
  }

  /// What all ranks have given: one list of numbers each, of equal lengths.
  std::vector<std::vector<int64_t>> numbers_of_all(const std::vector<int64_t>& own,
                                                   const CommunicationOptions& options) {
    CommunicationOptions of_numbers;
    of_numbers.timeout_seconds = options.timeout_seconds;
    const at::Tensor mine = at::tensor(own, at::device(at::kCPU).dtype(at::kLong));
    const at::Tensor all = host_->do_all_gather(at::TensorList(&mine, 1), 0, of_numbers)[0].contiguous();
    std::vector<std::vector<int64_t>> numbers;
    for (int r = 0; r < size(); ++r) {
      const int64_t* first = all.data_ptr<int64_t>() + static_cast<int64_t>(r) * mine.numel();
      numbers.emplace_back(first, first + mine.numel());
    }
    return numbers;
  }

  std::vector<at::Tensor> gather(const CollectiveCall& call, const CommunicationOptions& options);

  std::shared_ptr<GroupImpl> host_;
  std::shared_ptr<DeviceCollectives> collectives_;
  int local_;
  AgreeOnCall agree_;
};

bool DeviceGroup::reduces(const char* operation, at::TensorList inputs, const CommunicationOptions& options) const {
  const bool asked = options.implementation == CommunicationImplementation::Nccl && !host_->uses_nccl();
  LOCKSTEP_CHECK_VALUE(!asked || !options.deterministic, "[", operation,
                       "] NCCL has an order of its own in which it adds: implementation=NCCL, deterministic=true; "
                       "use AUTO");
  if (options.deterministic || !moves(inputs)) return false;
  for (const at::Tensor& input : inputs) {
    if (collectives_->reduces(reduced_as(input.scalar_type()))) continue;
    LOCKSTEP_CHECK_IMPLEMENTED(!asked, "[", operation, "] NCCL cannot reduce this dtype: implementation=NCCL, dtype=",
                               dtype_name(input.scalar_type()), "; use AUTO");
    return false;
  }
  return true;
}

/// Tensors of equal sizes on all ranks are gathered by one operation each; of others, each rank broadcasts its own.
/// Towards a root, ranks send.
std::vector<at::Tensor> DeviceGroup::gather(const CollectiveCall& call, const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t dim = call.free_dimension;
  std::vector<int64_t> own;
  for (const at::Tensor& input : call.inputs) own.push_back(input.size(dim));
  agree_(call, options, [] {});
  const auto sizes = numbers_of_all(own, options);
  std::vector<at::Tensor> kept;
  std::vector<DeviceOperation> operations;
  std::vector<std::vector<at::Tensor>> parts(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const at::Tensor mine = kept.emplace_back(plain(call.inputs[i]));
    if (call.root >= 0 && call.root != rank()) {
      operations.push_back(bytes_of(Kind::Send, mine, {}, call.root));
      continue;
    }
    const bool is_even = std::all_of(sizes.begin(), sizes.end(), [&](const auto& other) { return other[i] == own[i]; });
    if (is_even && call.root < 0) {
      auto shape = mine.sizes().vec();
      shape.insert(shape.begin(), size());
      const at::Tensor all = at::empty(shape, mine.options());
      operations.push_back(bytes_of(Kind::AllGather, mine, all, -1));
      if (dim == 0) {
        parts[i] = {all.flatten(0, 1)};
      } else {
        parts[i] = all.unbind(0);
      }
      continue;
    }
    for (int from = 0; from < size(); ++from) {
      const bool is_own = from == rank();
      const int64_t rows = sizes[static_cast<size_t>(from)][i];
      const at::Tensor part = is_own ? mine : at::empty(with_size(mine.sizes(), dim, rows), mine.options());
      parts[i].push_back(part);
      if (call.root < 0) {
        operations.push_back(bytes_of(Kind::Broadcast, part, part, from));
      } else if (!is_own) {
        operations.push_back(bytes_of(Kind::Receive, {}, part, from));
      }
    }
  }
  run(call, options, operations);  // a rank whose memory ran out has queued nothing, and none of the others has
  std::vector<at::Tensor> results;
  for (const auto& of_input : parts) {
    if (of_input.size() == 1) results.push_back(of_input[0]);
    if (of_input.size() > 1) results.push_back(at::cat(of_input, dim));
  }
  return results;
}

std::vector<at::Tensor> DeviceGroup::do_all_to_all(at::TensorList inputs, const RowCounts& sent, RowCounts& received,
                                                   const CommunicationOptions& options) {
  if (!moves(inputs)) return host_->do_all_to_all(inputs, sent, received, options);
  const at::NoGradGuard no_grad;
  const CollectiveCall call{.operation = "all_to_all", .inputs = inputs, .free_dimension = 0, .carrier = kCarrier};
  agree_(call, options, [] {});
  std::vector<int64_t> own;
  for (const auto& rows : sent) own.insert(own.end(), rows.begin(), rows.end());
  const auto counts = numbers_of_all(own, options);
  std::vector<at::Tensor> kept;
  std::vector<at::Tensor> results;
  std::vector<DeviceOperation> operations;
  const auto members = static_cast<size_t>(size());
  received.assign(inputs.size(), {});
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const auto& of_rank : counts) received[i].push_back(of_rank[i * members + static_cast<size_t>(rank())]);
    const int64_t total = std::accumulate(received[i].begin(), received[i].end(), int64_t(0));
    const at::Tensor mine = kept.emplace_back(plain(inputs[i]));
    results.push_back(at::empty(with_size(mine.sizes(), 0, total), mine.options()));
    int64_t from_row = 0;
    int64_t to_row = 0;
    for (size_t r = 0; r < members; ++r) {
      const at::Tensor out = mine.narrow(0, from_row, sent[i][r]);
      const at::Tensor in = results[i].narrow(0, to_row, received[i][r]);
      from_row += sent[i][r];
      to_row += received[i][r];
      if (static_cast<int>(r) == rank()) {
        in.copy_(out);
      } else {
        operations.push_back(bytes_of(Kind::Send, out, {}, static_cast<int>(r)));
        operations.push_back(bytes_of(Kind::Receive, {}, in, static_cast<int>(r)));
      }
    }
  }
  run(call, options, operations);
  return results;
}

}  // namespace

std::shared_ptr<GroupImpl> make_device_group(std::shared_ptr<GroupImpl> host,
                                             std::shared_ptr<DeviceCollectives> collectives, int local,
                                             AgreeOnCall agree) {
  return std::make_shared<DeviceGroup>(std::move(host), std::move(collectives), local, std::move(agree));
}

std::vector<Group> make_local_device_groups(const std::vector<Group>& hosts,
                                            const std::shared_ptr<Rendezvous>& rendezvous,
                                            const std::shared_ptr<DeviceCollectives>& collectives) {
  std::vector<Group> groups;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const int local = static_cast<int>(rank);
    groups.emplace_back(
        make_device_group(hosts[rank].impl(), collectives, local,
                          [rendezvous, local](const CollectiveCall& call, const CommunicationOptions& options,
                                              c10::function_ref<void()> work) {
                            CollectiveScope scope(*rendezvous, local, call, options.timeout());
                            scope.run(work);
                          }));
  }
  return groups;
}

}  // namespace lockstep::comm
