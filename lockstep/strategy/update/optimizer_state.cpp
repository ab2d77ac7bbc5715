#include "lockstep/strategy/update/optimizer_state.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/shm/shm.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/update/gradient_fetch.h"

namespace lockstep::detail {
namespace {

/// Large enough that a message costs more than its beginning, small enough that the first one goes early.
constexpr int64_t kBytesPerBucket = 4 << 20;
/// Large enough that replicas rarely meet, small enough that copying one takes little beside computing all.
constexpr int64_t kBytesPerStretch = 16 << 20;

bool can_be_shared(const at::Tensor& parameter) {
  return parameter.device().is_cpu() && parameter.is_contiguous() && parameter.numel() > 0 &&
         parameter.is_floating_point();
}

Presence presence_of(const at::Tensor& gradient) {
  return !gradient.defined() ? kAbsent : gradient.is_sparse() ? kSparse : kDense;
}

}  // namespace

bool has_plain_memory(const at::Tensor& buffer) { return buffer.device().is_cpu() && buffer.is_contiguous(); }

void wait_for_stream(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

OptimizerCore::State::State(Setup given) : setup(std::move(given)), replicas(setup.groups.size()) {
  for (size_t r = 0; r < replicas.size(); ++r) {
    for (const auto& group : setup.groups[r]) {
      replicas[r].parameters.insert(replicas[r].parameters.end(), group.params().begin(), group.params().end());
    }
    if (r < setup.buffers.size()) replicas[r].buffers = setup.buffers[r];
  }
  for (size_t g = 0; g < setup.groups[0].size(); ++g) {
    groups.insert(groups.end(), setup.groups[0][g].params().size(), g);
  }
  for (OptimizerReplica& replica : replicas) {
    LOCKSTEP_CHECK_VALUE(replica.parameters.size() == groups.size(),
                         "[optimizer] every replica must have the same parameters: replica 0 has ", groups.size(),
                         ", another one ", replica.parameters.size());
    replica.kept = replica.parameters;
    for (size_t p = 0; p < setup.central.size(); ++p) replica.kept[p] = setup.central[p].stored();
    replica.fetched.resize(groups.size());
    replica.rows.resize(groups.size());
  }
  if (const comm::SharedRendezvous* shared = setup.strategy->shared_rendezvous()) arena = &shared->memory().own();
  for (const OptimizerReplica& replica : replicas) {
    for (const at::Tensor& buffer : replica.buffers) {
      if (arena != nullptr && has_plain_memory(buffer)) move_to_arena(*arena, buffer);
    }
    for (const at::Tensor& parameter : replica.parameters) {
      if (arena != nullptr && can_be_shared(parameter)) move_to_arena(*arena, parameter);
    }
  }
  front = make_front();
  plan();
  for (OptimizerReplica& replica : replicas) {
    replica.on_device = DeviceOptimizer::make(*front, replica.parameters, groups);
  }
  plan_stretches();
}

/// The optimizer whose options hold for all. It is never stepped: its parameters come later, so that a constructor
/// which makes state for them at once, as Adagrad's does, makes none.
std::unique_ptr<torch::optim::Optimizer> OptimizerCore::State::make_front() const {
  Groups empty;
  for (const auto& group : setup.groups[0]) {
    empty.emplace_back(std::vector<at::Tensor>{});
    if (group.has_options()) empty.back().set_options(group.options().clone());
  }
  auto made = setup.factory(std::move(empty));
  for (size_t g = 0; g < setup.groups[0].size(); ++g) {
    made->param_groups()[g].params() = setup.groups[0][g].params();
  }
  return made;
}

std::unique_ptr<torch::optim::Optimizer> OptimizerCore::State::make_for_one(at::Tensor parameter, size_t group) const {
  Groups one;
  one.emplace_back(std::vector<at::Tensor>{std::move(parameter)}, front->param_groups()[group].options().clone());
  return setup.factory(std::move(one));
}

void OptimizerCore::State::before_run() {
  for (const OptimizerReplica& replica : replicas) {
    if (replica.on_device) replica.on_device->take_rates(front->param_groups());
  }
}

/// Decides the way of every parameter, and who updates what.
void OptimizerCore::State::plan() {
  std::vector<UpdateWay> ways(groups.size(), UpdateWay::kShared);
  std::vector<int64_t> sizes;
  std::vector<int64_t> element_bytes;
  for (size_t p = 0; p < groups.size(); ++p) {
    bool shared = setup.elementwise;
    for (const OptimizerReplica& replica : replicas) shared = shared && can_be_shared(replica.kept[p]);
    if (!shared) ways[p] = UpdateWay::kReplicated;
    sizes.push_back(shared ? replicas[0].kept[p].numel() : 0);
    element_bytes.push_back(replicas[0].kept[p].element_size());
  }
  const auto chunks = plan_updates(sizes, element_bytes, num_owners());
  const auto make = [this](at::Tensor slice, size_t group) { return make_for_one(std::move(slice), group); };
  for (int r = 0; r < num_replicas(); ++r) {
    replicas[r].ways = ways;
    replicas[r].shared = std::make_unique<SharedUpdate>(chunks[owner_of(r)], replicas[r].kept, groups, make);
  }
}

void OptimizerCore::State::plan_stretches() {
  const bool travels = std::any_of(replicas.begin(), replicas.end(),
                                   [&](const OptimizerReplica& replica) { return computes_elsewhere(replica); });
  stretches.push_back({0, groups.size()});
  if (!travels) return;
  int64_t bytes = 0;
  for (size_t p = 0; p < groups.size(); ++p) {
    if (bytes >= kBytesPerStretch) {
      stretches.back().end = p;
      stretches.push_back({p, groups.size()});
      bytes = 0;
    }
    bytes += static_cast<int64_t>(replicas[0].kept[p].nbytes());
  }
}

OptimizerReplica& OptimizerCore::State::here(const char* operation, int& replica) {
  const ContextFrame* frame = current_frame();
  const bool inside = frame != nullptr && frame->strategy == setup.strategy.get() && frame->replica >= 0;
  LOCKSTEP_CHECK_CONTEXT(inside || !several(), "[", operation,
                         "] belongs to the replicas: call it inside the function given to `run` of the strategy that ",
                         "the optimizer was made under; replicas=", setup.strategy->num_replicas_in_sync());
  replica = inside ? frame->replica : 0;
  return replicas[replica];
}

/// The gradient as others can read it: beside what is kept, contiguous, and in the arena where there is one.
at::Tensor OptimizerCore::State::offered_gradient(OptimizerReplica& own, size_t parameter, bool fetched) const {
  const at::Tensor& gradient = own.parameters[parameter].grad();
  if (!gradient.defined()) return gradient;
  const at::Tensor& kept = own.kept[parameter];
  if (gradient.device() != kept.device()) {
    if (gradient.is_sparse()) return fetch_rows(gradient, kept.device());
    if (!fetched || !own.buckets->holds(parameter)) fetch(gradient, own.fetched[parameter], kept);
    return own.fetched[parameter];
  }
  if (gradient.is_sparse()) return with_plain_values(gradient);
  const at::Tensor plain = gradient.is_contiguous() ? gradient : gradient.contiguous();
  if (arena == nullptr || !plain.is_cpu() || arena->contains(plain.data_ptr())) return plain;
  const comm::SharedAllocation shared(true);
  return plain.clone();
}

UpdateOffer OptimizerCore::State::offer(OptimizerReplica& own, bool fetched) const {
  UpdateOffer offer;
  offer.parameters.reserve(own.parameters.size());
  offer.gradients.reserve(own.parameters.size());
  for (size_t p = 0; p < own.parameters.size(); ++p) {
    const at::Tensor& kept = own.kept[p];
    if (arena != nullptr && can_be_shared(kept)) move_to_arena(*arena, kept);
    at::Tensor gradient = offered_gradient(own, p, fetched);
    UpdateOffer::Parameter offered;
    offered.presence = presence_of(gradient);
    if (can_be_shared(kept)) {
      offered.data = static_cast<char*>(kept.data_ptr());
      if (offered.presence == kDense) offered.gradient = static_cast<const char*>(gradient.data_ptr());
    }
    offer.parameters.push_back(offered);
    offer.gradients.push_back(std::move(gradient));
  }
  if (computes_elsewhere(own)) wait_for_stream(own.parameters[0].device());
  for (const at::Tensor& buffer : own.buffers) {
    if (!has_plain_memory(buffer)) continue;
    if (arena != nullptr) move_to_arena(*arena, buffer);
    offer.buffers.push_back(static_cast<char*>(buffer.data_ptr()));
  }
  offer.reduced = own.reduced;
  return offer;
}

UpdateOffer OptimizerCore::State::offer_presence(const OptimizerReplica& own) const {
  UpdateOffer offer;
  for (const at::Tensor& parameter : own.parameters) {
    offer.parameters.push_back({nullptr, nullptr, presence_of(parameter.grad())});
  }
  offer.reduced = own.reduced;
  return offer;
}

void OptimizerCore::State::check_offers(const char* operation, const Offers& offers) const {
  for (const UpdateOffer* offer : offers) {
    LOCKSTEP_CHECK_COLLECTIVE(offer->reduced == offers[0]->reduced, "[", operation,
                              "] either all replicas or none must have called reduce_gradients before");
  }
}

void OptimizerCore::State::meet(int replica, const char* operation, UpdateOffer& mine, const Work& work) {
  if (num_owners() == 1) return work({&mine});
  comm::Call call;
  call.operation = operation;
  call.inputs = replicas[replica].kept;
  call.payload = &mine;
  call.payload_type = &typeid(UpdateOffer);
  if (arena != nullptr) return meet_workers(replica, call, mine, work);
  comm::Meeting meeting(setup.strategy->rendezvous(), replica, call);
  Offers offers;
  for (const comm::Call* other : meeting.calls()) offers.push_back(static_cast<const UpdateOffer*>(other->payload));
  check_offers(operation, offers);
  work(offers);
  meeting.finish();
}

/// The same with the replicas of all workers, in shared memory.
void OptimizerCore::State::meet_workers(int replica, const comm::Call& call, UpdateOffer& mine, const Work& work) {
  comm::SharedRendezvous& shared = *setup.strategy->shared_rendezvous();
  mine.write_notice(shared.notice(replica, mine.notice_bytes()), *arena);
  comm::SharedMeeting meeting(shared, replica, call, {});
  std::vector<UpdateOffer> theirs(static_cast<size_t>(shared.size()));
  Offers offers;
  for (int rank = 0; rank < shared.size(); ++rank) {
    if (rank == shared.rank_of(replica)) {
      offers.push_back(&mine);
      continue;
    }
    auto& other = theirs[static_cast<size_t>(rank)];
    other = mine.read_notice(shared.notice_of(rank), shared.memory(), shared.worker_of(rank));
    offers.push_back(&other);
  }
  check_offers(call.operation.data(), offers);
  work(offers);
  meeting.finish();
}

bool OptimizerCore::State::finish_buckets(OptimizerReplica& own) {
  if (!own.buckets || !own.buckets->is_begun()) return false;
  own.buckets->finish();
  return true;
}

bool OptimizerCore::State::finish_fetching(OptimizerReplica& own) {
  if (!computes_elsewhere(own) || !finish_buckets(own)) return false;
  for (const size_t p : own.buckets->filled()) own.parameters[p].mutable_grad().reset();
  return true;
}

/// From the second step on, gradients of parameters that were dense in the first one travel while backward computes.
void OptimizerCore::State::make_buckets(int replica, OptimizerReplica& own, const std::vector<char>& present) {
  std::vector<char> taken(present.size(), 0);
  for (size_t p = 0; p < present.size(); ++p) {
    taken[p] = present[p] == kDense && own.parameters[p].requires_grad() && own.parameters[p].is_leaf() ? 1 : 0;
  }
  GradientBuckets::Send send;
  if (by_messages()) {
    send = [group = setup.strategy->gradient_group(replica), &own](const std::vector<size_t>& parameters) {
      std::vector<at::Tensor> gradients;
      for (const size_t p : parameters) gradients.push_back(own.parameters[p].grad());
      group.all_reduce_(gradients, ReduceOp::Sum);
    };
  } else {
    send = [&own](const std::vector<size_t>& parameters) {
      for (const size_t p : parameters) fetch(own.parameters[p].grad(), own.fetched[p], own.kept[p]);
    };
  }
  own.buckets = std::make_unique<GradientBuckets>(own.parameters, taken, kBytesPerBucket, std::move(send));
}

std::vector<char> presence(const OptimizerCore::State::Offers& offers) {
  std::vector<char> present(offers[0]->parameters.size(), kAbsent);
  for (const UpdateOffer* offer : offers) {
    for (size_t p = 0; p < present.size(); ++p) {
      present[p] = std::max<char>(present[p], static_cast<char>(offer->parameters[p].presence));
    }
  }
  return present;
}

std::vector<char> presence(const comm::Group& group, std::vector<char> local) {
  const at::Tensor own = at::from_blob(local.data(), {static_cast<int64_t>(local.size())}, at::kChar);
  group.all_reduce_(own, ReduceOp::Max);
  return local;
}

}  // namespace lockstep::detail
