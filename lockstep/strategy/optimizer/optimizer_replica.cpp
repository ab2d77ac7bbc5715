#include "lockstep/strategy/optimizer/optimizer_replica.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/exchange/make_exchange.h"
#include "lockstep/strategy/optimizer/tensor_mark.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

SumShare share_of_sums(const StrategyImpl& strategy, int replica, bool averages) {
  const bool is_compiled = strategy.devices()[static_cast<size_t>(replica)].torch_device.type() == c10::DeviceType::XLA;
  if (averages) return {SumShare::Whole};
  if (is_compiled) return {SumShare::Part, strategy.num_replicas_in_sync()};
  return {strategy.global_replica(replica) == 0 ? SumShare::Whole : SumShare::None};
}

/// Null where no parameter is divided. Sums of gradients whose updates replicas of a worker share are made together.
std::unique_ptr<DividedUpdate> make_divided_update(const StrategyImpl& strategy, int replica,
                                                   const ReplicaParameters& tensors, const UpdatePlan& plan,
                                                   const OptimizerPrototype& prototype, Shard shard) {
  std::vector<char> divided;
  for (const UpdateMethod method : plan.methods) divided.push_back(method == UpdateMethod::Divided ? 1 : 0);
  const auto has = [&](UpdateMethod method) {
    return std::find(plan.methods.begin(), plan.methods.end(), method) != plan.methods.end();
  };
  if (!has(UpdateMethod::Divided)) return nullptr;
  DividedUpdateSetup setup{.group = [&strategy, replica] { return strategy.group(replica); },
                           .rank = strategy.global_replica(replica),
                           .num_ranks = strategy.num_replicas_in_sync(),
                           .parameters = tensors,
                           .groups = plan.groups,
                           .divided = std::move(divided),
                           .prototype = prototype,
                           .scatters = shard == Shard::Gradients && !has(UpdateMethod::Sharded),
                           .bytes_per_bucket = strategy.communication_options().bytes_per_pack};
  if (sends_gradients(strategy, {})) {
    setup.backward_group = [&strategy, replica] { return strategy.gradient_group(replica); };
    setup.wait = [&strategy, replica](c10::function_ref<void()> wait) {
      const auto waits = strategy.wait_for_gradients(replica);
      wait();
    };
  }
  return std::make_unique<DividedUpdate>(std::move(setup));
}

void bump_versions_of(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

std::vector<ReplicaParameters> parameters_of_replicas(const OptimizerSetup& setup) {
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
    replica.names = setup.names;
  }
  return replicas;
}

OptimizerReplica::OptimizerReplica(int index_, const StrategyImpl& strategy, const ReplicaParameters& tensors_,
                                   std::unique_ptr<GradientExchange> exchange_, const UpdatePlan& plan,
                                   const OptimizerPrototype& prototype, bool averages,
                                   std::shared_ptr<RowMemory> row_memory, Shard shard)
    : index(index_),
      tensors(tensors_),
      exchange(std::move(exchange_)),
      scope(exchange->scope()),
      methods(plan.methods),
      sharded(plan.chunks[static_cast<size_t>(scope.reader)], tensors.stored, plan.groups,
              [&prototype](at::Tensor slice, size_t group) { return prototype.make_for(std::move(slice), group); }),
      tables(prototype, tensors.stored, plan.groups, scope, std::move(row_memory)),
      whole(make_whole_update({strategy, index, tensors, plan.groups, methods, prototype, *exchange})),
      divided(make_divided_update(strategy, index, tensors, plan, prototype, shard)),
      reduced(tensors.parameters, share_of_sums(strategy, index, averages)),
      writes(strategy.parameter_writes(), strategy.num_replicas_in_sync() > 1 || tensors.stored_once
                                              ? tensors.parameters
                                              : std::vector<at::Tensor>()) {}

std::vector<ShardedUpdate::ChunkState> OptimizerReplica::chunks_of(size_t parameter) const {
  std::vector<ShardedUpdate::ChunkState> chunks = sharded.chunks_of(parameter);
  return chunks.empty() && divided ? divided->chunks_of(parameter) : chunks;
}

void OptimizerReplica::make_dense_where_needed() {
  for (size_t p = 0; p < tensors.parameters.size(); ++p) {
    if (!methods.has_dense_state(p) || exchange->is_in_flight(p) || !tensors.parameters[p].grad().defined() ||
        !tensors.parameters[p].grad().is_sparse())
      continue;
    const bool is_sum = reduced.is_sum(p);
    tensors.parameters[p].mutable_grad() = tensors.parameters[p].grad().to_dense();
    if (is_sum) reduced.mark(p);
  }
}

void OptimizerReplica::store_updated(const ReplicaGradients& published, const std::vector<char>& present) const {
  const at::NoGradGuard no_grad;
  for (size_t p = 0; p < published.values.size(); ++p) {
    const at::Tensor& values = published.values[p];
    if (present[p] == kAbsent || !values.defined() || values.is_same(tensors.stored[p])) continue;
    tensors.stored[p].copy_(values);
  }
}

void OptimizerReplica::bump_versions() const {
  bump_versions_of(tensors.parameters);
  if (tensors.stored_once) bump_versions_of(tensors.stored);
}

void OptimizerReplica::note_gradients() {
  earlier_gradients.clear();
  for (const at::Tensor& parameter : tensors.parameters) {
    earlier_gradients.emplace_back(parameter.grad().getIntrusivePtr());
  }
}

void OptimizerReplica::check_gradients_are_of_this_run() const {
  for (size_t p = 0; p < earlier_gradients.size(); ++p) {
    const at::Tensor& gradient = tensors.parameters[p].grad();
    const bool is_earlier =
        gradient.defined() && gradient.unsafeGetTensorImpl() == earlier_gradients[p]._unsafe_get_target();
    LOCKSTEP_CHECK_VALUE(!is_earlier || reduced.is_sum(p),
                         "[optimizer] with Gradients::Mean, gradients of several runs cannot be accumulated, because ",
                         "each run has its own rows: parameter=", tensors.name(p),
                         "; reduce them in the run that computes them, call zero_grad() first, or sum them with ",
                         "average_loss");
  }
}

void OptimizerReplica::note_accumulated(std::optional<StepScale> scale, bool is_weighted) {
  accumulated = AccumulatedGradients{scale, is_weighted};
  if (accumulated->is_plain()) return;
  for (const at::Tensor& parameter : tensors.parameters) {
    const at::Tensor& gradient = parameter.grad();
    accumulated->left.emplace_back(gradient.getIntrusivePtr(), gradient.defined() ? version_of(gradient) : 0);
  }
}

void OptimizerReplica::note_gradients_before_record() {
  known_before_record_ = reduced.known();
  accumulated_before_record_ = accumulated;
  versions_before_record_.clear();
  for (const at::Tensor& parameter : tensors.parameters) {
    versions_before_record_.push_back(parameter.grad().defined() ? version_of(parameter.grad()) : 0);
  }
}

/// Recorded calls have written nothing, but they have counted as writes.
void OptimizerReplica::restore_gradients_before_record() {
  reduced.restore(known_before_record_);
  accumulated = std::move(accumulated_before_record_);
  for (size_t p = 0; accumulated && p < accumulated->left.size(); ++p) {
    auto& [gradient, version] = accumulated->left[p];
    const at::Tensor& now = tensors.parameters[p].grad();
    const bool is_known = now.defined() && gradient._unsafe_get_target() == now.unsafeGetTensorImpl();
    if (is_known && version == versions_before_record_[p]) version = version_of(now);
  }
}

void OptimizerReplica::check_accumulated(const char* operation) const {
  for (size_t p = 0; p < tensors.parameters.size(); ++p) {
    const at::Tensor& gradient = tensors.parameters[p].grad();
    if (!gradient.defined()) continue;
    const bool is_known = accumulated && p < accumulated->left.size() &&
                          accumulated->left[p].first._unsafe_get_target() == gradient.unsafeGetTensorImpl() &&
                          accumulated->left[p].second == version_of(gradient);
    LOCKSTEP_CHECK_VALUE(is_known, "[", operation, "] with Gradients::Mean or a scaler, gradients must be those that ",
                         "accumulate() computed, with the same options: parameter=", tensors.name(p),
                         "; call accumulate(loss) in place of loss.backward(), and zero_grad() before the first one");
  }
}

void OptimizerReplica::check_plain(const char* operation) const {
  LOCKSTEP_CHECK_VALUE(!accumulated || accumulated->is_plain(), "[", operation, "] accumulate() has left gradients ",
                       "that are weighted (Gradients::Mean) or scaled already; call apply()");
}

void OptimizerReplica::drop_gradients() {
  for (const at::Tensor& parameter : tensors.parameters) parameter.mutable_grad().reset();
  accumulated.reset();
  reduced.clear();
}

}  // namespace lockstep::detail
