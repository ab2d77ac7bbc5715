#include "lockstep/strategy/optimizer_core.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <torch/types.h>
// After torch/types.h, whose functions it uses without including them.
#include <torch/nn/utils/clip_grad.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/shm/shm.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/gradient_buckets.h"
#include "lockstep/strategy/optimizer.h"
#include "lockstep/strategy/shared_update.h"

namespace lockstep::detail {
namespace {

/// Large enough that a message costs more than its beginning, small enough that the first one goes early.
constexpr int64_t kBytesPerBucket = 4 << 20;

/// What one replica owns.
struct Replica {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
  std::unique_ptr<SharedUpdate> shared;
  /// 1 for parameters that are updated in the replicated way; the same on all replicas.
  std::vector<char> replicated;
  std::unique_ptr<torch::optim::Optimizer> own;
  bool own_is_stale = true;
  bool reduced = false;
  /// Gradients that travel during backward, once it is known which parameters have dense ones.
  std::unique_ptr<GradientBuckets> buckets;
};

bool can_be_shared(const at::Tensor& parameter) {
  return parameter.device().is_cpu() && parameter.is_contiguous() && parameter.numel() > 0 &&
         parameter.is_floating_point();
}

/// Buffers that are averaged through their addresses; others go through LibTorch.
bool has_plain_memory(const at::Tensor& buffer) { return buffer.device().is_cpu() && buffer.is_contiguous(); }

/// The gradient as others can read it: contiguous, and in the arena where there is one.
at::Tensor offered_gradient(const at::Tensor& parameter, const comm::SharedArena* arena) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.is_sparse()) return gradient;
  const at::Tensor plain = gradient.is_contiguous() ? gradient : gradient.contiguous();
  if (arena == nullptr || !plain.is_cpu() || arena->contains(plain.data_ptr())) return plain;
  const comm::SharedAllocation shared(true);
  return plain.clone();
}

}  // namespace

struct OptimizerCore::State {
  Setup setup;
  std::vector<Replica> replicas;
  /// The group of each parameter, in the order of all groups' parameters.
  std::vector<size_t> groups;
  std::unique_ptr<torch::optim::Optimizer> front;

  explicit State(Setup given);
  void plan();

  /// Replicas here, replicas everywhere, and those that show each other their memory: here, or everywhere.
  int num_replicas() const { return static_cast<int>(replicas.size()); }
  bool several() const { return setup.strategy->num_replicas_in_sync() > 1; }
  int num_owners() const { return arena == nullptr ? num_replicas() : setup.strategy->num_replicas_in_sync(); }
  int owner_of(int replica) const { return arena == nullptr ? replica : setup.strategy->global_replica(replica); }
  /// Whether other workers are reached by messages: gradients are summed over all of them first, updates are local.
  bool by_messages() const { return setup.strategy->num_workers() > 1 && arena == nullptr; }

  /// The memory that all workers see; null where there is none.
  const comm::SharedArena* arena = nullptr;

  Replica& here(const char* operation, int& replica);
  UpdateOffer offer(Replica& own) const;
  using Work = std::function<void(const std::vector<const UpdateOffer*>&)>;
  void meet(int replica, const char* operation, UpdateOffer& mine, const Work& work);
  void meet_workers(int replica, const comm::Call& call, UpdateOffer& mine, const Work& work);
  void check_offers(const char* operation, const std::vector<const UpdateOffer*>& offers) const;

  void update(int replica, Replica& own, const std::vector<const UpdateOffer*>& offers,
              const std::vector<char>& present);
  void average_buffers(int replica, const Replica& own, const std::vector<const UpdateOffer*>& offers);
  void average_other_buffers(int replica, Replica& own);
  void reduce(int replica, Replica& own, const std::vector<char>& skip, const std::vector<char>& present);
  bool finish_buckets(Replica& own);
  void make_buckets(int replica, Replica& own, const std::vector<char>& present);
  at::Tensor step_own(Replica& own, const std::function<at::Tensor()>& closure);
};

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
  for (const Replica& replica : replicas) {
    LOCKSTEP_CHECK_VALUE(replica.parameters.size() == groups.size(),
                         "[optimizer] every replica must have the same parameters: replica 0 has ", groups.size(),
                         ", another one ", replica.parameters.size());
  }
  if (const comm::SharedRendezvous* shared = setup.strategy->shared_rendezvous()) arena = &shared->memory().own();
  for (const Replica& replica : replicas) {
    for (const at::Tensor& buffer : replica.buffers) {
      if (arena != nullptr && has_plain_memory(buffer)) move_to_arena(*arena, buffer);
    }
    for (const at::Tensor& parameter : replica.parameters) {
      if (arena != nullptr && can_be_shared(parameter)) move_to_arena(*arena, parameter);
    }
  }
  front = setup.factory(setup.groups[0]);
  plan();
}

/// Decides the way of every parameter, and who updates what.
void OptimizerCore::State::plan() {
  std::vector<char> replicated(groups.size(), 0);
  std::vector<int64_t> sizes;
  std::vector<int64_t> element_bytes;
  for (size_t p = 0; p < groups.size(); ++p) {
    bool shared = setup.elementwise;
    for (const Replica& replica : replicas) shared = shared && can_be_shared(replica.parameters[p]);
    replicated[p] = shared ? 0 : 1;
    sizes.push_back(shared ? replicas[0].parameters[p].numel() : 0);
    element_bytes.push_back(replicas[0].parameters[p].element_size());
  }
  const auto chunks = plan_updates(sizes, element_bytes, num_owners());
  const auto make = [&](at::Tensor slice, size_t group) {
    Groups one;
    one.emplace_back(std::vector<at::Tensor>{std::move(slice)}, front->param_groups()[group].options().clone());
    return setup.factory(std::move(one));
  };
  for (int r = 0; r < num_replicas(); ++r) {
    replicas[r].replicated = replicated;
    replicas[r].shared = std::make_unique<SharedUpdate>(chunks[owner_of(r)], replicas[r].parameters, groups, make);
  }
}

Replica& OptimizerCore::State::here(const char* operation, int& replica) {
  const ContextFrame* frame = current_frame();
  const bool inside = frame != nullptr && frame->strategy == setup.strategy.get() && frame->replica >= 0;
  LOCKSTEP_CHECK_CONTEXT(inside || !several(), "[", operation,
                         "] belongs to the replicas: call it inside the function given to `run` of the strategy that ",
                         "the optimizer was made under; replicas=", setup.strategy->num_replicas_in_sync());
  replica = inside ? frame->replica : 0;
  return replicas[replica];
}

UpdateOffer OptimizerCore::State::offer(Replica& own) const {
  UpdateOffer offer;
  offer.parameters.reserve(own.parameters.size());
  offer.gradients.reserve(own.parameters.size());
  for (const at::Tensor& parameter : own.parameters) {
    if (arena != nullptr && can_be_shared(parameter)) move_to_arena(*arena, parameter);
    at::Tensor gradient = offered_gradient(parameter, arena);
    UpdateOffer::Parameter offered;
    offered.presence = !gradient.defined() ? kAbsent : gradient.is_sparse() ? kSparse : kDense;
    if (can_be_shared(parameter)) {
      offered.data = static_cast<char*>(parameter.data_ptr());
      if (offered.presence == kDense) offered.gradient = static_cast<const char*>(gradient.data_ptr());
    }
    offer.parameters.push_back(offered);
    offer.gradients.push_back(std::move(gradient));
  }
  for (const at::Tensor& buffer : own.buffers) {
    if (!has_plain_memory(buffer)) continue;
    if (arena != nullptr) move_to_arena(*arena, buffer);
    offer.buffers.push_back(static_cast<char*>(buffer.data_ptr()));
  }
  offer.reduced = own.reduced;
  return offer;
}

void OptimizerCore::State::check_offers(const char* operation, const std::vector<const UpdateOffer*>& offers) const {
  for (const UpdateOffer* offer : offers) {
    LOCKSTEP_CHECK_COLLECTIVE(offer->reduced == offers[0]->reduced, "[", operation,
                              "] either all replicas or none must have called reduce_gradients before");
  }
}

void OptimizerCore::State::meet(int replica, const char* operation, UpdateOffer& mine, const Work& work) {
  if (num_owners() == 1) return work({&mine});
  comm::Call call;
  call.operation = operation;
  call.inputs = replicas[replica].parameters;
  call.payload = &mine;
  call.payload_type = &typeid(UpdateOffer);
  if (arena != nullptr) return meet_workers(replica, call, mine, work);
  comm::Meeting meeting(setup.strategy->rendezvous(), replica, call);
  std::vector<const UpdateOffer*> offers;
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
  std::vector<const UpdateOffer*> offers;
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

void OptimizerCore::State::update(int replica, Replica& own, const std::vector<const UpdateOffer*>& offers,
                                  const std::vector<char>& present) {
  for (size_t p = 0; p < groups.size(); ++p) {
    if (present[p] == kSparse && own.replicated[p] == 0) {
      own.replicated[p] = 1;
      own.own_is_stale = true;
    }
  }
  own.shared->apply(owner_of(replica), offers, own.replicated, front->param_groups());
  if (offers.size() > 1 && !by_messages()) average_buffers(replica, own, offers);
}

/// Each buffer by one replica, for all.
void OptimizerCore::State::average_buffers(int replica, const Replica& own,
                                           const std::vector<const UpdateOffer*>& offers) {
  size_t b = 0;
  for (const at::Tensor& buffer : own.buffers) {
    if (!has_plain_memory(buffer)) continue;
    if (b % offers.size() == static_cast<size_t>(owner_of(replica)) && buffer.numel() > 0) {
      std::vector<const void*> sources;
      std::vector<void*> targets;
      for (const UpdateOffer* offer : offers) {
        sources.push_back(offer->buffers[b]);
        targets.push_back(offer->buffers[b]);
      }
      comm::reduce_kernel(buffer.scalar_type(), ReduceOp::Mean, sources.size())(sources, targets, buffer.numel());
    }
    ++b;
  }
}

/// Waits for the gradients that travel; false where none do.
bool OptimizerCore::State::finish_buckets(Replica& own) {
  if (!own.buckets || !own.buckets->is_begun()) return false;
  own.buckets->finish();
  return true;
}

/// From the second step on, gradients of parameters that were dense in the first one travel while backward computes.
void OptimizerCore::State::make_buckets(int replica, Replica& own, const std::vector<char>& present) {
  std::vector<char> taken(present.size(), 0);
  for (size_t p = 0; p < present.size(); ++p) {
    taken[p] = present[p] == kDense && own.parameters[p].requires_grad() && own.parameters[p].is_leaf() ? 1 : 0;
  }
  own.buckets = std::make_unique<GradientBuckets>(own.parameters, taken, setup.strategy->gradient_group(replica),
                                                  kBytesPerBucket);
}

/// Sums gradients over replicas, in place, of all parameters that `skip` does not name.
void OptimizerCore::State::reduce(int replica, Replica& own, const std::vector<char>& skip,
                                  const std::vector<char>& present) {
  const comm::Group& group = setup.strategy->group(replica);
  std::vector<at::Tensor> dense;
  for (size_t p = 0; p < groups.size(); ++p) {
    if (present[p] == kAbsent || skip[p] != 0) continue;
    at::Tensor& gradient = own.parameters[p].mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(own.parameters[p]);
    if (present[p] == kSparse) {
      gradient = group.all_reduce(gradient.is_sparse() ? gradient : gradient.to_sparse(1), ReduceOp::Sum);
    } else {
      if (!gradient.is_contiguous()) gradient = gradient.contiguous();
      dense.push_back(gradient);
    }
  }
  if (!dense.empty()) group.all_reduce_(dense, ReduceOp::Sum);
}

/// Buffers that replicas show each other are averaged where gradients are, by one replica each; others by all of them.
void OptimizerCore::State::average_other_buffers(int replica, Replica& own) {
  std::map<c10::DeviceType, std::vector<at::Tensor>> others;
  for (const at::Tensor& buffer : own.buffers) {
    if (by_messages() || !has_plain_memory(buffer)) others[buffer.device().type()].push_back(buffer);
  }
  for (const auto& [kind, buffers] : others) setup.strategy->group(replica).all_reduce_(buffers, ReduceOp::Mean);
}

at::Tensor OptimizerCore::State::step_own(Replica& own, const std::function<at::Tensor()>& closure) {
  if (own.own_is_stale) {
    Groups mine;
    for (size_t g = 0; g < front->param_groups().size(); ++g) {
      mine.emplace_back(std::vector<at::Tensor>{}, front->param_groups()[g].options().clone());
    }
    for (size_t p = 0; p < groups.size(); ++p) {
      if (own.replicated[p] != 0) mine[groups[p]].params().push_back(own.parameters[p]);
    }
    own.own = setup.factory(std::move(mine));
    own.own_is_stale = false;
  }
  for (size_t g = 0; g < front->param_groups().size(); ++g) {
    own.own->param_groups()[g].set_options(front->param_groups()[g].options().clone());
  }
  return closure ? own.own->step(closure) : own.own->step();
}

namespace {

/// Returns for each parameter the strongest of what the replicas' gradients are.
std::vector<char> presence(const std::vector<const UpdateOffer*>& offers) {
  std::vector<char> present(offers[0]->parameters.size(), kAbsent);
  for (const UpdateOffer* offer : offers) {
    for (size_t p = 0; p < present.size(); ++p) {
      present[p] = std::max<char>(present[p], static_cast<char>(offer->parameters[p].presence));
    }
  }
  return present;
}

/// The same over all ranks of a group.
std::vector<char> presence(const comm::Group& group, std::vector<char> local) {
  const at::Tensor own = at::from_blob(local.data(), {static_cast<int64_t>(local.size())}, at::kChar);
  group.all_reduce_(own, ReduceOp::Max);
  return local;
}

bool any(const std::vector<char>& flags) {
  return std::any_of(flags.begin(), flags.end(), [](char flag) { return flag != 0; });
}

}  // namespace

OptimizerCore::OptimizerCore(Setup setup) : state_(std::make_unique<State>(std::move(setup))) {}

OptimizerCore::~OptimizerCore() = default;

void OptimizerCore::backward(const at::Tensor& loss) {
  int replica = 0;
  Replica& own = state_->here("minimize", replica);
  if (!own.buckets || own.reduced) return loss.backward();
  own.buckets->begin();
  try {
    loss.backward();
  } catch (...) {
    own.buckets->abandon();
    throw;
  }
}

void OptimizerCore::step() {
  int replica = 0;
  Replica& own = state_->here("optimizer step", replica);
  if (state_->by_messages()) reduce_gradients();
  std::vector<char> present;
  {
    UpdateOffer mine = state_->offer(own);
    state_->meet(replica, "optimizer step", mine, [&](const std::vector<const UpdateOffer*>& offers) {
      present = presence(offers);
      state_->update(replica, own, offers, present);
    });
  }
  if (any(own.replicated)) {
    if (!own.reduced && state_->several()) {
      std::vector<char> shared;
      for (const char replicated : own.replicated) shared.push_back(replicated != 0 ? 0 : 1);
      state_->reduce(replica, own, shared, present);
    }
    state_->step_own(own, nullptr);
  }
  if (state_->several()) state_->average_other_buffers(replica, own);
  for (const at::Tensor& parameter : own.parameters) {
    if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

at::Tensor OptimizerCore::step(const std::function<at::Tensor()>& closure) {
  int replica = 0;
  Replica& own = state_->here("optimizer step", replica);
  LOCKSTEP_CHECK_IMPLEMENTED(num_shared() == 0, "[optimizer step] a closure is for optimizers that evaluate the loss ",
                             "several times, such as LBFGS; call backward() and step()");
  const auto over_all = [&] {
    own.reduced = false;
    at::Tensor loss = closure();
    reduce_gradients();
    if (!state_->several()) return loss;
    return state_->setup.strategy->group(replica).all_reduce(loss.detach(), ReduceOp::Sum);
  };
  at::Tensor loss = state_->step_own(own, over_all);
  own.reduced = false;
  return loss;
}

void OptimizerCore::reduce_gradients() {
  int replica = 0;
  Replica& own = state_->here("reduce_gradients", replica);
  if (own.reduced) return;
  std::vector<char> travelled(own.parameters.size(), 0);
  const bool buckets_went = state_->finish_buckets(own);
  if (buckets_went) {
    for (size_t p = 0; p < travelled.size(); ++p) travelled[p] = own.buckets->holds(p) ? 1 : 0;
  }
  std::vector<char> present;
  {
    UpdateOffer mine = state_->offer(own);
    if (buckets_went) {
      for (const size_t p : own.buckets->filled()) mine.parameters[p].presence = kAbsent;
    }
    state_->meet(replica, "reduce_gradients", mine,
                 [&](const std::vector<const UpdateOffer*>& offers) { present = presence(offers); });
  }
  if (state_->by_messages()) present = presence(state_->setup.strategy->group(replica), std::move(present));
  if (state_->several()) state_->reduce(replica, own, travelled, present);
  for (size_t p = 0; p < present.size(); ++p) {
    if (travelled[p] != 0 && present[p] == kAbsent) own.parameters[p].mutable_grad().reset();
  }
  if (state_->by_messages() && !own.buckets) state_->make_buckets(replica, own, present);
  own.reduced = true;
}

double OptimizerCore::clip_gradients(double max_norm) {
  int replica = 0;
  Replica& own = state_->here("clip_grad_norm", replica);
  LOCKSTEP_CHECK_VALUE(max_norm > 0, "[clip_grad_norm] the norm must be positive: max_norm=", max_norm);
  reduce_gradients();
  return torch::nn::utils::clip_grad_norm_(own.parameters, max_norm);
}

void OptimizerCore::zero_grad() {
  int replica = 0;
  Replica& own = state_->here("zero_grad", replica);
  for (const at::Tensor& parameter : own.parameters) parameter.mutable_grad().reset();
  own.reduced = false;
}

torch::optim::Optimizer& OptimizerCore::front() { return *state_->front; }

StrategyImpl& OptimizerCore::strategy() const { return *state_->setup.strategy; }

size_t OptimizerCore::num_shared() const {
  const auto& replicated = state_->replicas[0].replicated;
  return static_cast<size_t>(std::count(replicated.begin(), replicated.end(), 0));
}

std::vector<at::Tensor> averaged_buffers(const torch::nn::Module& module) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined() && buffer.is_floating_point()) buffers.push_back(buffer);
  }
  return buffers;
}

OptimizerCore::Setup setup_for(const std::vector<Variable>& variables) {
  LOCKSTEP_CHECK_VALUE(!variables.empty(), "[optimizer] at least one variable is needed");
  OptimizerCore::Setup setup;
  setup.strategy = variables[0].strategy().shared_impl();
  for (size_t r = 0; r < variables[0].components().size(); ++r) {
    std::vector<at::Tensor> copies;
    for (const Variable& variable : variables) {
      LOCKSTEP_CHECK_VALUE(variable.strategy() == variables[0].strategy(),
                           "[optimizer] all variables must belong to one strategy: ", variable.name(), " does not");
      copies.push_back(variable.components()[r]);
    }
    setup.groups.push_back({torch::optim::OptimizerParamGroup(copies)});
  }
  return setup;
}

}  // namespace lockstep::detail
