#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/SmallVector.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/rank_groups.h"
#include "lockstep/comm/reduce/device_reduce.h"
#include "lockstep/comm/reduce/reduce_kernel.h"

namespace lockstep::comm {
namespace {

using Addresses = c10::SmallVector<const void*, 16>;

void reduce_to(const at::Tensor& output, const Addresses& inputs, ReduceOp op) {
  void* const target = output.data_ptr();
  reduce_kernel(output.scalar_type(), op, inputs.size())({inputs.data(), inputs.size()}, {&target, 1}, output.numel());
}

Addresses inputs_at(const PublishedCalls& all, size_t index) {
  Addresses addresses;
  for (const CollectiveCall* call : all.calls) addresses.push_back(call->inputs[index].data_ptr());
  return addresses;
}

}  // namespace

/// One rank of one group of a partition. All ranks of all groups take part in every call of the whole group; each works
/// on what the members of its own group have published.
class GroupWithin final : public ExchangeGroup {
 public:
  GroupWithin(std::shared_ptr<ExchangeGroup> whole, std::shared_ptr<const RankGroups> groups);

  int rank() const override { return position_; }
  int size() const override { return static_cast<int>(members().size()); }
  const std::string& name() const override { return name_; }
  bool is_alone() const override { return whole_->is_alone(); }

  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override;
  std::shared_ptr<GroupImpl> do_within(const std::shared_ptr<GroupImpl>& self,
                                       std::shared_ptr<const RankGroups> groups) override;

 protected:
  bool ranks_share_memory() const override { return whole_->ranks_share_memory(); }
  bool orders_streams() const override { return whole_->orders_streams(); }
  void run_collective(const CollectiveCall& call, const FlatTensors* flat, const CommunicationOptions& options,
                      c10::function_ref<void(const PublishedCalls&)> work) override;
  void reduce_on_cpu(const CollectiveCall& call, const FlatTensors& flat, const CommunicationOptions& options) override;

 private:
  const std::vector<int>& members() const { return groups_->members(whole_->rank()); }

  std::shared_ptr<ExchangeGroup> whole_;
  std::shared_ptr<const RankGroups> groups_;
  int position_;
  std::string name_;
};

GroupWithin::GroupWithin(std::shared_ptr<ExchangeGroup> whole, std::shared_ptr<const RankGroups> groups)
    : whole_(std::move(whole)),
      groups_(std::move(groups)),
      position_(groups_->position(whole_->rank())),
      name_(c10::str(whole_->name(), " within ", *groups_)) {}

std::shared_ptr<GroupImpl> GroupWithin::do_within(const std::shared_ptr<GroupImpl>& /*self*/,
                                                  std::shared_ptr<const RankGroups> /*groups*/) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[within] groups cannot be divided again: groups=", *groups_,
                 "; give the smaller groups at once");
}

void GroupWithin::run_collective(const CollectiveCall& call, const FlatTensors* flat,
                                 const CommunicationOptions& options,
                                 c10::function_ref<void(const PublishedCalls&)> work) {
  CollectiveCall within = call;
  within.groups = groups_.get();
  whole_->run_collective(within, flat, options, [&](const PublishedCalls& all) {
    c10::SmallVector<const CollectiveCall*, 16> calls;
    c10::SmallVector<const FlatTensors*, 16> flats;
    for (const int member : members()) {
      if (!all.calls.empty()) calls.push_back(all.calls[static_cast<size_t>(member)]);
      if (!all.flats.empty()) flats.push_back(all.flats[static_cast<size_t>(member)]);
    }
    work({{calls.data(), calls.size()}, {flats.data(), flats.size()}});
  });
}

void GroupWithin::reduce_on_cpu(const CollectiveCall& call, const FlatTensors& flat,
                                const CommunicationOptions& options) {
  if (ranks_share_memory()) return ExchangeGroup::reduce_on_cpu(call, flat, options);
  std::vector<at::Tensor> parts;
  for (const auto& piece : flat.pieces()) {
    const at::Tensor values = at::from_blob(const_cast<char*>(piece.input), {piece.count}, piece.dtype);
    for (int member = 0; member < size(); ++member) {
      const auto share = row_share(piece.count, member, size());
      parts.push_back(values.narrow(0, share.begin, share.count));
    }
  }
  CollectiveCall to_owners = call;
  to_owners.inputs = parts;
  to_owners.outputs = {};
  to_owners.root = -1;
  to_owners.readers = static_cast<size_t>(size());
  to_owners.divided = call.inputs;
  std::vector<at::Tensor> own;
  run_collective(to_owners, nullptr, options, [&](const PublishedCalls& all) {
    for (size_t i = 0; i < flat.pieces().size(); ++i) {
      const auto& piece = flat.pieces()[i];
      own.push_back(
          at::empty({row_share(piece.count, rank(), size()).count}, at::TensorOptions(piece.dtype).device(at::kCPU)));
      if (own.back().numel() > 0)
        reduce_to(own.back(), inputs_at(all, i * to_owners.readers + static_cast<size_t>(position_)), call.reduce_op);
    }
  });
  const CollectiveCall to_all{
      .operation = call.operation, .inputs = own, .reduce_op = call.reduce_op, .root = call.root, .free_dimension = 0};
  run_collective(to_all, nullptr, options, [&](const PublishedCalls& all) {
    if (call.outputs.empty()) return;
    for (size_t i = 0; i < flat.pieces().size(); ++i) {
      char* to = flat.pieces()[i].output;
      for (const CollectiveCall* other : all.calls) {
        const at::Tensor& part = other->inputs[i];
        if (part.nbytes() > 0) std::memcpy(to, part.data_ptr(), part.nbytes());
        to += part.nbytes();
      }
    }
  });
}

void GroupWithin::do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                    const CommunicationOptions& options) {
  if (!input.is_cpu() || ranks_share_memory()) return ExchangeGroup::do_reduce_scatter(input, output, op, options);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (int member = 0; member < size(); ++member) {
    const auto share = row_share(input.size(0), member, size());
    parts.push_back(input.detach().narrow(0, share.begin, share.count).contiguous());
  }
  const CollectiveCall call{.operation = "reduce_scatter",
                            .inputs = parts,
                            .reduce_op = op,
                            .readers = static_cast<size_t>(size()),
                            .divided = at::TensorList(&input, 1)};
  run_collective(call, nullptr, options, [&](const PublishedCalls& all) {
    if (output.numel() == 0) return;
    reduce_to(output, inputs_at(all, static_cast<size_t>(rank())), op);
  });
}

std::shared_ptr<GroupImpl> make_group_within(std::shared_ptr<ExchangeGroup> whole,
                                             std::shared_ptr<const RankGroups> groups) {
  return std::make_shared<GroupWithin>(std::move(whole), std::move(groups));
}

}  // namespace lockstep::comm
