#include "lockstep/strategy/optimizer/optimizer_core.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/optimizer/exchange/clip_gradients.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/gradient_weight.h"
#include "lockstep/strategy/optimizer/exchange/make_exchange.h"
#include "lockstep/strategy/optimizer/optimizer_core_state.h"
#include "lockstep/strategy/optimizer/parameter_writes.h"
#include "lockstep/strategy/optimizer/update/device_optimizer.h"
#include "lockstep/strategy/optimizer/without_autocast.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

bool has_learning_rates(const torch::optim::Optimizer& optimizer) {
  try {
    for (const auto& group : optimizer.param_groups()) group.options().get_lr();
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

std::vector<double> learning_rates(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

/// The part of a replica's loss in the mean of all.
at::Tensor weighted(const at::Tensor& loss, const GradientWeight& weight) {
  return weight.is_zero ? at::zeros_like(loss) : loss * weight.value.to(loss.scalar_type());
}

at::Tensor traced_closure(const std::function<at::Tensor()>& closure) {
  const trace::Span span(trace::Phase::Forward, "closure");
  return closure();
}

/// The parameter group of each parameter, in the order of all groups' parameters.
std::vector<size_t> group_of_each_parameter(const OptimizerCore::Groups& groups) {
  std::vector<size_t> group_of;
  for (size_t g = 0; g < groups.size(); ++g) group_of.insert(group_of.end(), groups[g].params().size(), g);
  return group_of;
}

}  // namespace

OptimizerCoreState::OptimizerCoreState(const OptimizerSetup& setup)
    : strategy(setup.strategy),
      modules(setup.modules),
      central(setup.central),
      tensors(parameters_of_replicas(setup)),
      check(*strategy, static_cast<int>(tensors.size())),
      prototype(setup.factory, setup.front_factory, setup.groups[0]),
      num_groups(setup.groups[0].size()),
      rows_known(RowUpdate::knows(prototype.kind())),
      elementwise(setup.elementwise),
      gradients(setup.gradients),
      compression(setup.compression),
      shard(setup.shard),
      checks_rates(tensors.size() > 1 && has_learning_rates(prototype.front())),
      number(setup.strategy->next_optimizer()) {
  check_own_parameters(tensors, tensors[0].names);
  check_shard(setup, prototype.kind());
  validate(compression);
  if (!std::holds_alternative<compression::None>(compression) && !sends_gradients(*strategy, central)) {
    LOCKSTEP_LOG(Warn) << "compression of gradients has no effect: replicas of one process, and workers that share "
                       << "memory, exchange gradients without messages; compression=" << compression;
  }
  make_plan();
}

void OptimizerCoreState::make_plan() {
  replicas.clear();
  planned = PlannedParameters(tensors[0]);
  const int num_replicas = static_cast<int>(tensors.size());
  rows_elsewhere.assign(planned.size(), 0);
  const auto row_memory = std::make_shared<RowMemory>();
  std::vector<std::unique_ptr<GradientExchange>> exchanges;
  for (int r = 0; r < num_replicas; ++r) {
    exchanges.push_back(
        make_exchange(*strategy, r, num_replicas, tensors[static_cast<size_t>(r)], central, compression));
  }
  const int num_owners = exchanges[0]->scope().num_readers;
  std::vector<size_t> groups = group_of_each_parameter(prototype.groups());
  plan = divides() ? plan_divided_updates(tensors, std::move(groups), num_owners, strategy->num_replicas_in_sync())
                   : plan_updates(tensors, std::move(groups), elementwise, num_owners);
  for (int r = 0; r < num_replicas; ++r) {
    const auto i = static_cast<size_t>(r);
    replicas.push_back(std::make_unique<OptimizerReplica>(r, *strategy, tensors[i], std::move(exchanges[i]), plan,
                                                          prototype, averages(), row_memory, shard));
  }
}

void OptimizerCoreState::check_plan(const OptimizerReplica& replica) const {
  planned.check(replica.tensors, replica.methods);
  check_groups();
}

void OptimizerCoreState::check_groups() const {
  size_t num_parameters = 0;
  for (const auto& group : prototype.groups()) num_parameters += group.params().size();
  LOCKSTEP_CHECK_VALUE(prototype.groups().size() == num_groups && num_parameters == planned.size(),
                       "[optimizer] parameters must not be added to the groups of an optimizer: made with ",
                       planned.size(), " in ", num_groups, " groups, has ", num_parameters, " in ",
                       prototype.groups().size(), "; make a new optimizer with all of them");
}

void OptimizerCoreState::follow_parameters() {
  const bool fits = std::all_of(tensors.begin(), tensors.end(),
                                [&](const ReplicaParameters& of_replica) { return planned.fit(of_replica); });
  if (!fits && !has_stepped) make_plan();
  if (!fits && has_stepped) {
    for (const auto& replica : replicas) check_plan(*replica);
  }
  check_groups();
}

uint64_t OptimizerCoreState::before_run() {
  follow_parameters();
  check.begin_run();
  has_stepped_in_run = false;
  for (const auto& replica : replicas) replica->whole->before_run();
  if (checks_rates) rates_before_run = learning_rates(prototype.front());
  return 0;
}

/// A rate that a replica changes is changed by each of them.
void OptimizerCoreState::after_run() {
  if (!checks_rates) return;
  const std::vector<double> rates = learning_rates(prototype.front());
  for (size_t g = 0; g < rates.size() && g < rates_before_run.size(); ++g) {
    LOCKSTEP_CHECK_VALUE(rates[g] == rates_before_run[g],
                         "[optimizer] a learning rate was changed inside the function given to `run`, by each of ",
                         replicas.size(), " replicas: group=", g, ", before=", rates_before_run[g],
                         ", after=", rates[g], "; change it between two runs");
  }
}

HeldTensors OptimizerCoreState::held_by(size_t replica) const {
  HeldTensors held;
  add_parameters(tensors, replica, held);
  replicas[replica]->whole->add_state(tensors[0].names, held);
  return held;
}

/// Traced replicas are compared when their program has been executed; their buffers are not.
void OptimizerCoreState::add_buffers(int replica, HeldTensors& held) const {
  for (const auto& module : modules) {
    for (auto& [name, buffer] : module->equal_buffers(replica)) held.push_back({"buffer " + name, buffer});
  }
}

void OptimizerCoreState::check_before_first_step(int replica) {
  if (strategy->is_recording() || !check.is_due_before_first_step(replica)) return;
  check.compare(replica, held_by(static_cast<size_t>(replica)));
}

void OptimizerCoreState::begin_replica(int replica) {
  if (averages()) replicas[static_cast<size_t>(replica)]->note_gradients();
}

void OptimizerCoreState::end_replica(int replica) {
  if (strategy->is_traced() || strategy->is_recording() || !check.is_due(replica)) return;
  const comm::CollectiveOwnerScope as_owner(owner("state"));
  HeldTensors held = held_by(static_cast<size_t>(replica));
  add_buffers(replica, held);
  check.compare(replica, held);
}

void OptimizerCoreState::check_replicas() {
  if (strategy->num_workers() > 1 || !check.is_due(0)) return;
  std::vector<HeldTensors> held;
  for (size_t r = 0; r < replicas.size(); ++r) held.push_back(held_by(r));
  check.compare_all(held);
}

OptimizerReplica& OptimizerCoreState::current_replica(const char* operation) const {
  const ContextFrame* frame = current_frame();
  const bool inside = frame != nullptr && frame->strategy == strategy.get() && frame->replica >= 0;
  check_made_under_current(*strategy, "optimizer");
  LOCKSTEP_CHECK_CONTEXT(inside || !has_several_replicas(), "[", operation,
                         "] belongs to the replicas: call it inside the function given to `run` of the strategy that ",
                         "the optimizer was made under; replicas=", strategy->num_replicas_in_sync());
  return *replicas[inside ? static_cast<size_t>(frame->replica) : 0];
}

/// Replaces gradients that a user's backward left by their sums, or means.
void OptimizerCoreState::reduce(OptimizerReplica& replica) const {
  replica.check_plain("optimizer");
  if (averages()) {
    replica.check_gradients_are_of_this_run();
    replica.reduced.set_weight(gradient_weight(*strategy, replica.index, replica.tensors.parameters[0]));
  }
  const auto without_weight = c10::make_scope_exit([&] { replica.reduced.set_weight(std::nullopt); });
  replica.exchange->reduce(replica.reduced);
}

/// Inside a collective: updates the parameters of a segment whose update the replicas share.
void OptimizerCoreState::update_published(OptimizerReplica& replica, const AllGradients& all,
                                          const std::vector<char>& present, ParameterRange segment) const {
  const trace::Span span(trace::Phase::Update, "update of parameters");
  replica.methods.follow(present, replica.tensors.stored, rows_known);
  replica.sharded.apply(replica.scope.reader, all, replica.methods, segment, prototype.groups());
  for (size_t p = segment.begin; p < segment.end && replica.scope.publishes_sparse; ++p) {
    if (replica.methods[p] == UpdateMethod::Rows && present[p] != kAbsent) replica.tables.apply_published(p, all);
  }
}

/// Updates the other parameters, after their gradients have been summed.
void OptimizerCoreState::update_from_sums(OptimizerReplica& replica, const AgreedGradients& agreed,
                                          const at::Tensor& found_inf) const {
  const auto& [present, sums] = agreed;
  const bool rows_from_sums = !replica.scope.publishes_sparse;
  const bool scatters = replica.scatters();
  bool any_rows = false;
  bool any_replicated = false;
  std::vector<char> skip(plan.groups.size(), 0);
  for (size_t p = 0; p < skip.size(); ++p) {
    const bool by_rows = rows_from_sums && replica.methods[p] == UpdateMethod::Rows;
    const bool replicated = replica.methods[p] == UpdateMethod::Replicated;
    const bool divided = replica.methods[p] == UpdateMethod::Divided && !scatters;
    skip[p] = (by_rows || replicated || divided) && sums[p] == 0 ? 0 : 1;
    any_rows = any_rows || (by_rows && present[p] != kAbsent);
    any_replicated = any_replicated || replicated;
  }
  if (!any_rows && !any_replicated && !replica.divided) return;
  if (has_several_replicas()) replica.exchange->sum(present, skip, replica.reduced);
  for (size_t p = 0; p < skip.size() && any_rows; ++p) {
    if (replica.methods[p] != UpdateMethod::Rows) continue;
    const at::Tensor sum = exchanged_gradient(replica.tensors, p);
    if (sum.defined()) replica.tables.apply_sum(p, sum);
  }
  if (any_replicated) found_inf.defined() ? replica.whole->step_unless(found_inf) : replica.whole->step();
  if (replica.divided) replica.divided->step(agreed, replica.reduced);
}

void OptimizerCoreState::update_parameters(OptimizerReplica& replica, const at::Tensor& found_inf) {
  const OptimizerWrites::Scope counted(replica.writes);
  if (replica.divided) replica.divided->finish_backward();
  replica.make_dense_where_needed();
  if (!replica.scope.reaches_all && !replica.scatters()) replica.exchange->reduce(replica.reduced);
  std::vector<char> present;
  std::vector<char> sums;
  {
    ReplicaGradients published = replica.exchange->publish(replica.reduced);
    if (replica.divided) replica.divided->set_presence(published);
    for (const ParameterRange segment : plan.segments) {
      replica.exchange->collective("optimizer step", published, [&](const AllGradients& all) {
        present = presence(all);
        sums = sums_on_all(all);
        update_published(replica, all, present, segment);
      });
      replica.exchange->refresh(segment);
    }
    replica.store_updated(published, present);
  }
  AgreedGradients agreed{std::move(present), std::move(sums)};
  if (replica.scatters()) agreed = replica.exchange->of_all_replicas(std::move(agreed));
  update_from_sums(replica, agreed, found_inf);
  replica.exchange->finish_step(agreed.present);
  replica.reduced.set_used();
  replica.bump_versions();
}

void OptimizerCoreState::update(OptimizerReplica& replica, const at::Tensor& found_inf) {
  check_plan(replica);
  check_before_first_step(replica.index);
  has_stepped = true;
  has_stepped_in_run = true;
  for (const auto& module : modules) module->before_update(replica.index);
  update_parameters(replica, found_inf);
  for (const auto& module : modules) module->after_update(replica.index);
  check.count_step(replica.index);
}

OptimizerCore::OptimizerCore(Setup setup) : state_(std::make_shared<OptimizerCoreState>(setup)) {
  state_->strategy->observers().add(state_);
}

OptimizerCore::~OptimizerCore() = default;

void OptimizerCore::step() {
  if (current_frame() == nullptr && !state_->has_stepped) state_->before_run();
  OptimizerReplica& replica = state_->current_replica("optimizer step");
  {
    const trace::Span span(trace::Phase::Update, "update");
    const comm::CollectiveOwnerScope owner(state_->owner("step"));
    const WithoutAutocast uncast(/*drops_copies=*/true);
    replica.check_plain("optimizer step");
    if (state_->averages()) state_->reduce(replica);
    state_->update(replica);
  }
  trace::count_step();
}

at::Tensor OptimizerCore::step(const std::function<at::Tensor()>& closure) {
  OptimizerReplica& replica = state_->current_replica("optimizer step");
  std::optional<trace::Span> span(std::in_place, trace::Phase::Update, "update");
  const comm::CollectiveOwnerScope owner(state_->owner("step"));
  LOCKSTEP_CHECK_IMPLEMENTED(num_sharded() == 0, "[optimizer step] a closure is for optimizers that evaluate the loss ",
                             "several times, such as LBFGS; call backward() and step()");
  state_->check_plan(replica);
  state_->check_before_first_step(replica.index);
  state_->has_stepped = true;
  state_->has_stepped_in_run = true;
  for (const auto& module : state_->modules) module->before_update(replica.index);
  std::optional<OptimizerWrites::Scope> counted(replica.writes);
  at::Tensor loss = replica.whole->step([&] {
    replica.reduced.set_used();
    at::Tensor loss_here = traced_closure(closure);
    state_->reduce(replica);
    if (!state_->has_several_replicas()) return loss_here;
    loss_here = loss_here.detach();
    if (state_->averages())
      loss_here = weighted(loss_here, gradient_weight(*state_->strategy, replica.index, loss_here));
    return state_->strategy->group(replica.index).all_reduce(loss_here, ReduceOp::Sum);
  });
  replica.reduced.set_used();
  replica.bump_versions();
  counted.reset();
  state_->check.count_step(replica.index);
  for (const auto& module : state_->modules) module->after_update(replica.index);
  span.reset();
  trace::count_step();
  return loss;
}

void OptimizerCore::reduce_gradients() {
  OptimizerReplica& replica = state_->current_replica("reduce_gradients");
  const comm::CollectiveOwnerScope owner(state_->owner("reduce_gradients"));
  state_->reduce(replica);
}

double OptimizerCore::clip_gradients(double max_norm) {
  OptimizerReplica& replica = state_->current_replica("clip_grad_norm");
  const comm::CollectiveOwnerScope owner(state_->owner("clip_grad_norm"));
  LOCKSTEP_CHECK_VALUE(max_norm > 0, "[clip_grad_norm] the norm must be positive: max_norm=", max_norm);
  state_->reduce(replica);
  std::vector<at::Tensor> numbers = gradient_numbers(OptimizerGradients{replica.tensors, replica.reduced});
  return clip_norm(numbers, max_norm).item<double>();
}

void OptimizerCore::zero_grad() { state_->current_replica("zero_grad").drop_gradients(); }

void OptimizerCore::set_lr(double lr) {
  check_outside_of_replicas("set_lr");
  for (auto& group : front().param_groups()) group.options().set_lr(lr);
  // A merge function may do it inside of a run.
  if (state_->checks_rates) state_->rates_before_run = learning_rates(front());
}

void OptimizerCore::check_outside_of_replicas(const char* operation) const {
  const ContextFrame* frame = current_frame();
  const bool inside = frame != nullptr && frame->strategy == state_->strategy.get() && frame->replica >= 0;
  LOCKSTEP_CHECK_CONTEXT(!inside || state_->replicas.size() == 1, "[", operation, "] was called inside replica ",
                         inside ? frame->replica : 0, " of ", state_->replicas.size(),
                         ", each of which would do it; call it between two runs");
}

torch::optim::Optimizer& OptimizerCore::front() { return state_->prototype.front(); }

StrategyImpl& OptimizerCore::strategy() const { return *state_->strategy; }

Gradients OptimizerCore::gradients() const { return state_->gradients; }

size_t OptimizerCore::num_sharded() const {
  const UpdateMethods& methods = state_->replicas[0]->methods;
  return methods.count(UpdateMethod::Sharded) + methods.count(UpdateMethod::Divided);
}

}  // namespace lockstep::detail
