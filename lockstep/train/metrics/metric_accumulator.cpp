#include "lockstep/train/metrics/metric_accumulator.h"

#include <algorithm>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

using detail::Access;

std::string key_of(size_t index) { return "copies_" + std::to_string(index); }

/// The local replica that the calling thread is in. Without a strategy the program itself is the replica.
size_t accumulating_replica(const detail::StrategyImpl& strategy, const Metric& metric) {
  const detail::ContextFrame* const frame = detail::current_frame();
  if (frame == nullptr && strategy.is_default()) return 0;
  LOCKSTEP_CHECK_CONTEXT(detail::is_in_replica_of(strategy),
                         "[MetricAccumulator::update] is called inside the replicas of its strategy: metric=",
                         metric.name(), ", strategy=", strategy.type_name(), "; call it inside `run`");
  return static_cast<size_t>(frame->replica);
}

void check_updated(const Metric& metric, const MetricState& before, const MetricState& after) {
  LOCKSTEP_CHECK_VALUE(before.size() == after.size(),
                       "[Metric::update] the state has as many tensors as initial(): metric=", metric.name(),
                       ", initial=", before.size(), ", update=", after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(
        after[i].sizes() == before[i].sizes() && after[i].scalar_type() == before[i].scalar_type(),
        "[Metric::update] shapes and dtypes of the state are those of initial(): metric=", metric.name(),
        ", tensor=", i, ", initial=", before[i].sizes(), " ", dtype_name(before[i].scalar_type()),
        ", update=", after[i].sizes(), " ", dtype_name(after[i].scalar_type()));
  }
}

/// The tensors of the state that was saved, each with one row for each replica. Checks all of them.
std::vector<at::Tensor> read_copies(const Metric& metric, const MetricState& initial, const State& state) {
  LOCKSTEP_CHECK_VALUE(state.size() == initial.size(),
                       "[MetricAccumulator::load_state] the state is that of another metric: metric=", metric.name(),
                       ", tensors=", initial.size(), ", saved=", state.size());
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < initial.size(); ++i) {
    const StateTensor& saved = state.tensor(key_of(i));
    const at::IntArrayRef sizes = saved.sizes;
    LOCKSTEP_CHECK_VALUE(sizes.size() == initial[i].sizes().size() + 1 && sizes[0] >= 1 &&
                             sizes[0] == state.tensor(key_of(0)).sizes[0] && sizes.slice(1) == initial[i].sizes() &&
                             saved.dtype == initial[i].scalar_type(),
                         "[MetricAccumulator::load_state] the state is that of another metric: metric=", metric.name(),
                         ", tensor=", i, ", initial=", initial[i].sizes(), " ", dtype_name(initial[i].scalar_type()),
                         ", saved for each replica=", sizes, " ", dtype_name(saved.dtype));
  }
  for (size_t i = 0; i < initial.size(); ++i) copies.push_back(state.tensor(key_of(i)).read());
  return copies;
}

/// Merges the states of all replicas; `copies[i][r]` is tensor i of replica r.
MetricState merged_state(const Metric& metric, const std::vector<std::vector<at::Tensor>>& copies) {
  MetricState merged = metric.initial();
  for (size_t replica = 0; !copies.empty() && replica < copies[0].size(); ++replica) {
    MetricState own;
    for (const auto& tensors : copies) own.push_back(tensors[replica]);
    merged = metric.merge(merged, own);
  }
  return merged;
}

}  // namespace

MetricAccumulator::MetricAccumulator(const Strategy& strategy, std::shared_ptr<const Metric> metric)
    : metric_(std::move(metric)), strategy_(strategy) {
  LOCKSTEP_CHECK_VALUE(metric_ != nullptr, "[MetricAccumulator] there is no metric: metric=null");
  detail::check_cross_replica(Access::impl(strategy_), "MetricAccumulator", "make it outside of `run`");
  auto states = std::make_shared<std::vector<MetricState>>();
  for (const LogicalDevice& device : Access::impl(strategy_).devices()) {
    MetricState& own = states->emplace_back();
    for (const at::Tensor& tensor : metric_->initial()) {
      own.push_back(tensor.detach().to(device.torch_device, tensor.scalar_type(), /*non_blocking=*/false,
                                       /*copy=*/true));
    }
  }
  states_ = std::move(states);
}

void MetricAccumulator::write(size_t replica, const MetricState& state) const {
  const MetricState& own = (*states_)[replica];
  MetricState from = state;
  for (size_t i = 0; i < own.size(); ++i) {
    const auto shares_memory = [&](const at::Tensor& to) { return from[i].is_alias_of(to); };
    if (!from[i].is_same(own[i]) && std::any_of(own.begin(), own.end(), shares_memory)) from[i] = from[i].clone();
  }
  for (size_t i = 0; i < own.size(); ++i) {
    at::Tensor to = own[i];
    if (!from[i].is_same(to)) to.copy_(from[i]);
  }
}

void MetricAccumulator::update(const MetricBatch& batch) const {
  const size_t replica = accumulating_replica(Access::impl(strategy_), *metric_);
  LOCKSTEP_CHECK_VALUE(batch.output.defined(),
                       "[MetricAccumulator::update] a batch has an output: metric=", metric_->name());
  const at::NoGradGuard no_grad;
  const MetricState& own = (*states_)[replica];
  const MetricState updated = metric_->update(own, batch);
  check_updated(*metric_, own, updated);
  write(replica, updated);
}

std::vector<at::Tensor> MetricAccumulator::copies_of_all(size_t index) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> local;
  for (const MetricState& own : *states_) {
    local.push_back(own[index].to(at::kCPU, own[index].scalar_type(), /*non_blocking=*/false, /*copy=*/true));
  }
  return Access::impl(strategy_).of_all_replicas(std::move(local));
}

at::Tensor MetricAccumulator::result() const {
  detail::check_cross_replica(Access::impl(strategy_), "MetricAccumulator::result", "call it outside of `run`");
  const at::NoGradGuard no_grad;
  std::vector<std::vector<at::Tensor>> copies;
  for (size_t i = 0; i < (*states_)[0].size(); ++i) copies.push_back(copies_of_all(i));
  return metric_->result(merged_state(*metric_, copies));
}

void MetricAccumulator::reset() const {
  detail::check_cross_replica(Access::impl(strategy_), "MetricAccumulator::reset", "call it outside of `run`");
  const at::NoGradGuard no_grad;
  const MetricState initial = metric_->initial();
  for (size_t replica = 0; replica < states_->size(); ++replica) write(replica, initial);
}

State MetricAccumulator::state() const {
  detail::check_cross_replica(Access::impl(strategy_), "MetricAccumulator::state", "call it outside of `run`");
  State state;
  for (size_t i = 0; i < (*states_)[0].size(); ++i) state.set(key_of(i), at::stack(copies_of_all(i)));
  return state;
}

void MetricAccumulator::load_state(const State& state) const {
  const detail::StrategyImpl& strategy = Access::impl(strategy_);
  detail::check_cross_replica(strategy, "MetricAccumulator::load_state", "call it outside of `run`");
  const at::NoGradGuard no_grad;
  const MetricState initial = metric_->initial();
  std::vector<std::vector<at::Tensor>> copies;
  for (const at::Tensor& tensor : read_copies(*metric_, initial, state)) copies.push_back(tensor.unbind(0));
  const bool is_own = !copies.empty() && static_cast<int>(copies[0].size()) == strategy.num_replicas_in_sync();
  const MetricState merged = merged_state(*metric_, copies);
  for (size_t replica = 0; replica < states_->size(); ++replica) {
    const auto global = static_cast<size_t>(strategy.global_replica(static_cast<int>(replica)));
    MetricState own = global == 0 ? merged : initial;
    for (size_t i = 0; is_own && i < own.size(); ++i) own[i] = copies[i][global];
    write(replica, own);
  }
}

}  // namespace lockstep
