#include "lockstep/strategy/tpu/traced_group.h"

#include <algorithm>
#include <chrono>
#include <numeric>
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

/// Factories without a device make tensors of the replica's device.
const at::TensorOptions kHostNumbers = at::TensorOptions(at::kLong).device(at::kCPU);

class TracedGroup final : public comm::GroupImpl {
 public:
  explicit TracedGroup(comm::Group host) : host_(std::move(host)) {}
  TracedGroup(comm::Group host, std::shared_ptr<const comm::RankGroups> groups)
      : host_(std::move(host)), groups_(std::move(groups)), within_(c10::str(", within ", *groups_)) {
    for (const auto& group : groups_->groups()) members_.insert(members_.end(), group.begin(), group.end());
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const std::string& name() const override { return host_.name(); }
  bool is_alone() const override { return groups_ ? groups_->num_ranks() == 1 : size() == 1; }

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
    const auto from_root = [&](const at::Tensor& t) { return xla::broadcast_from(t, root, size(), members_); };
    copy(traced(from_root, inputs, "broadcast", c10::str("root ", root), options), outputs);
  }

  std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                        const CommunicationOptions& options) override {
    if (!is_traced(inputs)) return host_.all_gather(inputs, dim, options);
    const auto gather = [&](const at::Tensor& t) { return xla::all_gathered(t, dim, size(), members_); };
    return traced(gather, inputs, "all_gather", c10::str("dim ", dim), options);
  }

  std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                    const CommunicationOptions& options) override {
    if (!is_traced(inputs)) return host_.gather(inputs, dim, root, options);
    const auto gather = [&](const at::Tensor& t) { return xla::all_gathered(t, dim, size(), members_); };
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

  std::vector<at::Tensor> do_all_to_all(at::TensorList inputs, const comm::RowCounts& sent, comm::RowCounts& received,
                                        const CommunicationOptions& options) override {
    if (!is_traced(inputs)) return host_.impl()->do_all_to_all(inputs, sent, received, options);
    const auto counts = counts_of_all(sent, options);
    received.assign(inputs.size(), {});
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (const auto& from : counts) received[i].push_back(from[i][static_cast<size_t>(rank())]);
    }
    size_t index = 0;
    const auto exchange = [&](const at::Tensor& t) { return exchanged(t, counts, index++); };
    return traced(exchange, inputs, "all_to_all", "rows", options);
  }

  std::shared_ptr<comm::GroupImpl> do_within(const std::shared_ptr<comm::GroupImpl>& /*self*/,
                                             std::shared_ptr<const comm::RankGroups> groups) override {
    LOCKSTEP_CHECK_IMPLEMENTED(groups->is_uniform(),
                               "[within] groups of replicas on XLA devices have one size: groups=", *groups,
                               "; make them equal");
    return std::make_shared<TracedGroup>(host_.within(*groups), std::move(groups));
  }

  void do_barrier(const CommunicationOptions& options) override { host_.barrier(options); }

 private:
  at::Tensor all_reduced(const at::Tensor& tensor, ReduceOp op) const {
    return xla::all_reduced(tensor, op, size(), members_);
  }

  /// How many rows each rank sends to each: `[from][tensor][to]`. Replicas with other programs may have other numbers.
  std::vector<comm::RowCounts> counts_of_all(const comm::RowCounts& sent, const CommunicationOptions& options) const {
    std::vector<int64_t> flat;
    for (const auto& of_tensor : sent) flat.insert(flat.end(), of_tensor.begin(), of_tensor.end());
    CommunicationOptions of_numbers = options;
    of_numbers.implementation = CommunicationImplementation::Auto;
    const comm::OperationScope operation({"all_to_all"});
    const at::Tensor all = host_.all_gather(at::tensor(flat, kHostNumbers).unsqueeze(0), 0, of_numbers);
    const int64_t* next = all.data_ptr<int64_t>();
    std::vector<comm::RowCounts> counts(static_cast<size_t>(size()), sent);
    for (comm::RowCounts& from : counts) {
      for (auto& of_tensor : from) {
        for (int64_t& rows : of_tensor) rows = *next++;
      }
    }
    return counts;
  }

  /// Replicas are one program, so each one sends and receives the same number of rows.
  void check_equal_rows(const std::vector<comm::RowCounts>& counts, size_t index) const {
    const auto rows_of = [&](size_t rank, bool sent) {
      int64_t rows = 0;
      for (size_t other = 0; other < counts.size(); ++other) {
        rows += sent ? counts[rank][index][other] : counts[other][index][rank];
      }
      return rows;
    };
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      LOCKSTEP_CHECK_IMPLEMENTED(rows_of(rank, true) == rows_of(0, true) && rows_of(rank, false) == rows_of(0, true),
                                 "[all_to_all] replicas on XLA devices send and receive the same number of rows: rows=",
                                 rows_of(0, true), ", replica ", rank, " sends ", rows_of(rank, true), " and receives ",
                                 rows_of(rank, false), "; pad them to one size first");
    }
  }

  /// Gathers all rows, and selects those that the ranks send to this one. Where the rows are is an input of the
  /// program.
  at::Tensor exchanged(const at::Tensor& tensor, const std::vector<comm::RowCounts>& counts, size_t index) const {
    check_equal_rows(counts, index);
    std::vector<int64_t> rows;
    for (size_t from = 0; from < counts.size(); ++from) {
      const auto& sent = counts[from][index];
      const auto before =
          std::accumulate(sent.begin(), sent.begin() + rank(), static_cast<int64_t>(from) * tensor.size(0));
      for (int64_t row = 0; row < sent[static_cast<size_t>(rank())]; ++row) rows.push_back(before + row);
    }
    const at::Tensor all = xla::all_gathered(tensor, 0, size(), members_);
    return all.index_select(0, at::tensor(rows, kHostNumbers).to(tensor.device()));
  }

  /// Applies a collective to each tensor, and notes the call with what replicas must agree on.
  template <class F>
  std::vector<at::Tensor> traced(F&& collective, at::TensorList inputs, const char* operation, std::string_view agreed,
                                 const CommunicationOptions& options) const {
    if (const xla::LazyStorage* storage = xla::storage_of(inputs[0])) {
      const bool is_inside = storage->device().run;
      LOCKSTEP_CHECK_CONTEXT(is_inside, "[", operation,
                             "] replicas make collectives inside `run`, and with them their ",
                             "gradients: device=", inputs[0].device(), "; call backward() in the function of `run`");
      const auto owner = comm::CollectiveOwner::current();
      const std::string purpose = owner.kind.empty() ? "" : c10::str(owner, ", ");
      xla::CollectiveNote note{c10::str(operation, "(", purpose, agreed, within_, ")"), options.timeout()};
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
  /// Null where the group has all replicas; else its members, group by group, and how calls name it.
  std::shared_ptr<const comm::RankGroups> groups_;
  std::vector<int64_t> members_;
  std::string within_;
};

}  // namespace

comm::Group traced_group(const comm::Group& host) { return comm::Group(std::make_shared<TracedGroup>(host)); }

}  // namespace lockstep::detail
