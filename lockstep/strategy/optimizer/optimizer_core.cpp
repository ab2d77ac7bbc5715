#include "lockstep/strategy/optimizer/optimizer_core.h"

#include <algorithm>
#include <atomic>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/optimizer/exchange/clip_gradients.h"
#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/make_exchange.h"
#include "lockstep/strategy/optimizer/update/device_optimizer.h"
#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"
#include "lockstep/strategy/optimizer/update/rows/table_updates.h"
#include "lockstep/strategy/optimizer/update/sharded_update.h"
#include "lockstep/strategy/optimizer/update/update_plan.h"
#include "lockstep/strategy/optimizer/update/whole_update.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Tells autograd that tensors were written, which it cannot see.
void bump_versions(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

/// The parameter group of each parameter, in the order of all groups' parameters.
std::vector<size_t> group_of_each_parameter(const OptimizerCore::Groups& groups) {
  std::vector<size_t> group_of;
  for (size_t g = 0; g < groups.size(); ++g) group_of.insert(group_of.end(), groups[g].params().size(), g);
  return group_of;
}

std::vector<ReplicaParameters> parameters_of_replicas(const OptimizerCore::Setup& setup) {
  std::vector<ReplicaParameters> replicas(setup.groups.size());
  for (size_t r = 0; r < replicas.size(); ++r) {
    ReplicaParameters& replica = replicas[r];
    for (const auto& group : setup.groups[r]) {
      replica.parameters.insert(replica.parameters.end(), group.params().begin(), group.params().end());
    }
    LOCKSTEP_CHECK_VALUE(replica.parameters.size() == replicas[0].parameters.size(),
                         "[optimizer] every replica must have the same parameters: replica 0 has ",
                         replicas[0].parameters.size(), ", another one ", replica.parameters.size());
    replica.stored = replica.parameters;
    replica.stored_once = !setup.central.empty();
    for (size_t p = 0; p < setup.central.size(); ++p) replica.stored[p] = setup.central[p].stored();
  }
  return replicas;
}

/// Makes sparse gradients dense where the optimizer has state for dense ones. Those that are being sent become dense
/// there.
void make_dense_where(const std::vector<at::Tensor>& parameters, const UpdateMethods& methods,
                      const GradientExchange& exchange, ReducedGradients& reduced) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!methods.has_dense_state(p) || exchange.is_in_flight(p) || !parameters[p].grad().defined() ||
        !parameters[p].grad().is_sparse())
      continue;
    const bool is_sum = reduced.is_sum(p);
    parameters[p].mutable_grad() = parameters[p].grad().to_dense();
    if (is_sum) reduced.mark(p);
  }
}

/// What a plan depends on. Values and memory may change.
struct PlannedParameter {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  bool can_be_sharded;

  explicit PlannedParameter(const at::Tensor& stored)
      : dtype(stored.scalar_type()), sizes(stored.sizes().vec()), can_be_sharded(detail::can_be_sharded(stored)) {}
  bool fits(const at::Tensor& stored) const {
    return stored.scalar_type() == dtype && stored.sizes() == sizes && detail::can_be_sharded(stored) == can_be_sharded;
  }
};

/// What one replica's thread works with.
struct OptimizerReplica {
  OptimizerReplica(int index_, const StrategyImpl& strategy, const ReplicaParameters& tensors_,
                   std::unique_ptr<GradientExchange> exchange_, const UpdatePlan& plan,
                   const OptimizerPrototype& prototype)
      : index(index_),
        tensors(tensors_),
        exchange(std::move(exchange_)),
        scope(exchange->scope()),
        methods(plan.methods),
        sharded(plan.chunks[static_cast<size_t>(scope.reader)], tensors.stored, plan.groups,
                [&prototype](at::Tensor slice, size_t group) { return prototype.make_for(std::move(slice), group); }),
        tables(prototype, tensors.stored, plan.groups, scope),
        whole(make_whole_update({strategy, index, tensors, plan.groups, methods, prototype, *exchange})),
        reduced(tensors.parameters, strategy.global_replica(index), strategy.num_replicas_in_sync()) {}

  const int index;
  const ReplicaParameters& tensors;
  const std::unique_ptr<GradientExchange> exchange;
  const ExchangeScope scope;
  UpdateMethods methods;
  ShardedUpdate sharded;
  TableUpdates tables;
  const std::unique_ptr<WholeUpdate> whole;
  ReducedGradients reduced;
};

}  // namespace

struct OptimizerCore::State final : RunObserver {
  const std::shared_ptr<StrategyImpl> strategy;
  /// Null for variables.
  const std::shared_ptr<UpdateObserver> module;
  const std::vector<CentralTensor> central;
  const std::vector<ReplicaParameters> tensors;
  const OptimizerPrototype prototype;
  const size_t num_groups;
  /// Whether the optimizer can update rows alone.
  const bool rows_known;
  const bool elementwise;
  UpdatePlan plan;
  /// What the plan was made for.
  std::vector<PlannedParameter> planned;
  std::vector<std::unique_ptr<OptimizerReplica>> replicas;
  std::atomic<bool> has_stepped{false};

  explicit State(const Setup& setup);

  void make_plan();
  void check_planned(const ReplicaParameters& of_replica) const;
  void check_groups() const;
  uint64_t before_run() override;
  size_t fingerprint() const override { return detail::fingerprint(prototype.front()); }

  bool has_several_replicas() const { return strategy->num_replicas_in_sync() > 1; }
  OptimizerReplica& current_replica(const char* operation) const;

  void backward(OptimizerReplica& replica, const at::Tensor& loss) const;
  void update_published(OptimizerReplica& replica, const AllGradients& all, const std::vector<char>& present,
                        ParameterRange segment) const;
  void update_from_sums(OptimizerReplica& replica, const std::vector<char>& present,
                        const std::vector<char>& sums) const;
};

OptimizerCore::State::State(const Setup& setup)
    : strategy(setup.strategy),
      module(setup.module),
      central(setup.central),
      tensors(parameters_of_replicas(setup)),
      prototype(setup.factory, setup.front_factory, setup.groups[0]),
      num_groups(setup.groups[0].size()),
      rows_known(RowUpdate::knows(prototype.kind())),
      elementwise(setup.elementwise) {
  make_plan();
}

void OptimizerCore::State::make_plan() {
  replicas.clear();
  planned.clear();
  for (const at::Tensor& stored : tensors[0].stored) planned.emplace_back(stored);
  const int num_replicas = static_cast<int>(tensors.size());
  std::vector<std::unique_ptr<GradientExchange>> exchanges;
  for (int r = 0; r < num_replicas; ++r) {
    exchanges.push_back(make_exchange(*strategy, r, num_replicas, tensors[static_cast<size_t>(r)], central));
  }
  plan = plan_updates(tensors, group_of_each_parameter(prototype.groups()), elementwise,
                      exchanges[0]->scope().num_readers);
  for (int r = 0; r < num_replicas; ++r) {
    const auto i = static_cast<size_t>(r);
    replicas.push_back(
        std::make_unique<OptimizerReplica>(r, *strategy, tensors[i], std::move(exchanges[i]), plan, prototype));
  }
}

void OptimizerCore::State::check_planned(const ReplicaParameters& of_replica) const {
  for (size_t p = 0; p < planned.size(); ++p) {
    const at::Tensor& now = of_replica.stored[p];
    LOCKSTEP_CHECK_VALUE(planned[p].fits(now),
                         "[optimizer] a parameter must keep its dtype, shape and layout once the ",
                         "optimizer has updated it: parameter=", p, ", was ", dtype_name(planned[p].dtype),
                         at::IntArrayRef(planned[p].sizes), ", is ", dtype_name(now.scalar_type()), now.sizes(),
                         " with strides ", now.strides(), "; make a new optimizer after the change");
  }
  check_groups();
}

void OptimizerCore::State::check_groups() const {
  size_t num_parameters = 0;
  for (const auto& group : prototype.groups()) num_parameters += group.params().size();
  LOCKSTEP_CHECK_VALUE(prototype.groups().size() == num_groups && num_parameters == planned.size(),
                       "[optimizer] parameters must not be added to the groups of an optimizer: made with ",
                       planned.size(), " in ", num_groups, " groups, has ", num_parameters, " in ",
                       prototype.groups().size(), "; make a new optimizer with all of them");
}

uint64_t OptimizerCore::State::before_run() {
  const bool fits = std::all_of(tensors.begin(), tensors.end(), [&](const ReplicaParameters& of_replica) {
    for (size_t p = 0; p < planned.size(); ++p) {
      if (!planned[p].fits(of_replica.stored[p])) return false;
    }
    return true;
  });
  if (!fits && !has_stepped) make_plan();
  if (!fits && has_stepped) {
    for (const ReplicaParameters& of_replica : tensors) check_planned(of_replica);
  }
  check_groups();
  for (const auto& replica : replicas) replica->whole->before_run();
  return 0;
}

OptimizerReplica& OptimizerCore::State::current_replica(const char* operation) const {
  const ContextFrame* frame = current_frame();
  const bool inside = frame != nullptr && frame->strategy == strategy.get() && frame->replica >= 0;
  check_made_under_current(*strategy, "optimizer");
  LOCKSTEP_CHECK_CONTEXT(inside || !has_several_replicas(), "[", operation,
                         "] belongs to the replicas: call it inside the function given to `run` of the strategy that ",
                         "the optimizer was made under; replicas=", strategy->num_replicas_in_sync());
  return *replicas[inside ? static_cast<size_t>(frame->replica) : 0];
}

void OptimizerCore::State::backward(OptimizerReplica& replica, const at::Tensor& loss) const {
  // Buckets would send sums once more.
  if (replica.reduced.any_marked()) return loss.backward();
  replica.exchange->begin_backward();
  try {
    loss.backward();
  } catch (...) {
    replica.exchange->abandon_backward();
    throw;
  }
}

/// Inside a collective: updates the parameters of a segment whose update the replicas share.
void OptimizerCore::State::update_published(OptimizerReplica& replica, const AllGradients& all,
                                            const std::vector<char>& present, ParameterRange segment) const {
  replica.methods.follow(present, replica.tensors.stored, rows_known);
  replica.sharded.apply(replica.scope.reader, all, replica.methods, segment, prototype.groups());
  for (size_t p = segment.begin; p < segment.end && replica.scope.publishes_sparse; ++p) {
    if (replica.methods[p] == UpdateMethod::Rows && present[p] != kAbsent) replica.tables.apply_published(p, all);
  }
}

/// Updates the other parameters, after their gradients have been summed.
void OptimizerCore::State::update_from_sums(OptimizerReplica& replica, const std::vector<char>& present,
                                            const std::vector<char>& sums) const {
  const bool rows_from_sums = !replica.scope.publishes_sparse;
  bool any_rows = false;
  bool any_replicated = false;
  std::vector<char> skip(plan.groups.size(), 0);
  for (size_t p = 0; p < skip.size(); ++p) {
    const bool by_rows = rows_from_sums && replica.methods[p] == UpdateMethod::Rows;
    const bool replicated = replica.methods[p] == UpdateMethod::Replicated;
    skip[p] = (by_rows || replicated) && sums[p] == 0 ? 0 : 1;
    any_rows = any_rows || (by_rows && present[p] != kAbsent);
    any_replicated = any_replicated || replicated;
  }
  if (!any_rows && !any_replicated) return;
  if (has_several_replicas()) replica.exchange->sum(present, skip, replica.reduced);
  for (size_t p = 0; p < skip.size() && any_rows; ++p) {
    if (replica.methods[p] != UpdateMethod::Rows) continue;
    const at::Tensor sum = exchanged_gradient(replica.tensors.parameters[p], replica.tensors.stored[p].device());
    if (sum.defined()) replica.tables.apply_sum(p, sum);
  }
  if (any_replicated) replica.whole->step();
}

OptimizerCore::OptimizerCore(Setup setup) : state_(std::make_shared<State>(setup)) {
  state_->strategy->add_run_observer(state_);
}

OptimizerCore::~OptimizerCore() = default;

void OptimizerCore::minimize(const at::Tensor& loss, std::optional<double> clip_norm) {
  OptimizerReplica& replica = state_->current_replica("minimize");
  LOCKSTEP_CHECK_VALUE(!clip_norm || *clip_norm > 0, "[minimize] the norm must be positive: clip_norm=", *clip_norm);
  try {
    state_->backward(replica, loss);
    if (clip_norm) clip_to_norm(*clip_norm);
    step();
  } catch (...) {
    replica.exchange->abandon_backward();
    zero_grad();
    throw;
  }
  zero_grad();
}

void OptimizerCore::step() {
  if (current_frame() == nullptr && !state_->has_stepped) state_->before_run();
  OptimizerReplica& replica = state_->current_replica("optimizer step");
  state_->check_planned(replica.tensors);
  state_->has_stepped = true;
  if (state_->module) state_->module->before_update(replica.index);
  make_dense_where(replica.tensors.parameters, replica.methods, *replica.exchange, replica.reduced);
  if (!replica.scope.reaches_all) replica.exchange->reduce(replica.reduced);
  std::vector<char> present;
  std::vector<char> sums;
  {
    ReplicaGradients published = replica.exchange->publish(replica.reduced);
    for (const ParameterRange segment : state_->plan.segments) {
      replica.exchange->collective("optimizer step", published, [&](const AllGradients& all) {
        present = presence(all);
        sums = sums_on_all(all);
        state_->update_published(replica, all, present, segment);
      });
      replica.exchange->refresh(segment);
    }
  }
  state_->update_from_sums(replica, present, sums);
  replica.exchange->finish_step(present);
  replica.reduced.set_used();
  bump_versions(replica.tensors.parameters);
  if (replica.tensors.stored_once) bump_versions(replica.tensors.stored);
  if (state_->module) state_->module->after_update(replica.index);
}

at::Tensor OptimizerCore::step(const std::function<at::Tensor()>& closure) {
  OptimizerReplica& replica = state_->current_replica("optimizer step");
  LOCKSTEP_CHECK_IMPLEMENTED(num_sharded() == 0, "[optimizer step] a closure is for optimizers that evaluate the loss ",
                             "several times, such as LBFGS; call backward() and step()");
  state_->check_planned(replica.tensors);
  state_->has_stepped = true;
  if (state_->module) state_->module->before_update(replica.index);
  at::Tensor loss = replica.whole->step([&] {
    replica.reduced.set_used();
    at::Tensor loss_here = closure();
    replica.exchange->reduce(replica.reduced);
    if (!state_->has_several_replicas()) return loss_here;
    return state_->strategy->group(replica.index).all_reduce(loss_here.detach(), ReduceOp::Sum);
  });
  replica.reduced.set_used();
  if (state_->module) state_->module->after_update(replica.index);
  return loss;
}

void OptimizerCore::reduce_gradients() {
  OptimizerReplica& replica = state_->current_replica("reduce_gradients");
  replica.exchange->reduce(replica.reduced);
}

at::Tensor OptimizerCore::clip_to_norm(double max_norm) {
  OptimizerReplica& replica = state_->current_replica("clip_grad_norm");
  LOCKSTEP_CHECK_VALUE(max_norm > 0, "[clip_grad_norm] the norm must be positive: max_norm=", max_norm);
  replica.exchange->reduce(replica.reduced);
  return detail::clip_gradients(replica.tensors.parameters, max_norm, replica.reduced);
}

double OptimizerCore::clip_gradients(double max_norm) { return clip_to_norm(max_norm).item<double>(); }

void OptimizerCore::zero_grad() {
  OptimizerReplica& replica = state_->current_replica("zero_grad");
  for (const at::Tensor& parameter : replica.tensors.parameters) parameter.mutable_grad().reset();
  replica.reduced.clear();
}

torch::optim::Optimizer& OptimizerCore::front() { return state_->prototype.front(); }

StrategyImpl& OptimizerCore::strategy() const { return *state_->strategy; }

size_t OptimizerCore::num_sharded() const { return state_->replicas[0]->methods.count(UpdateMethod::Sharded); }

}  // namespace lockstep::detail
