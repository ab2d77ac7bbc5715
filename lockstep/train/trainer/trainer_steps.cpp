#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/losses.h"
#include "lockstep/strategy/state/module_state.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/trainer/trainer_impl.h"

namespace lockstep {
namespace {

thread_local detail::StepContext* current_step = nullptr;

/// The losses of all micro-batches of an update are divided by one number.
void check_per_row(detail::StepContext& context, const Batch& batch, int64_t per_row) {
  if (context.num_micro == 1 || batch.rows() == 0 || !context.counts_rows) return;
  if (context.per_row == 0) context.per_row = per_row;
  LOCKSTEP_CHECK_VALUE(context.per_row == per_row,
                       "[Trainer] the micro-batches of an update must have equally many losses for each row: ",
                       context.per_row, " and ", per_row, "; give the loss a count: Loss(sum, count)");
}

}  // namespace

detail::StepScope::StepScope(StepContext& context) { current_step = &context; }

detail::StepScope::~StepScope() { current_step = nullptr; }

detail::StepContext& detail::StepScope::here(const char* operation) {
  LOCKSTEP_CHECK_CONTEXT(current_step != nullptr, "[Trainer::", operation,
                         "] belongs to train_step and test_step: call it there");
  return *current_step;
}

Outputs Trainer::forward(const Batch& batch) { return impl_->forward(batch); }

Trainer::LossShare Trainer::loss(const Outputs& outputs, const Batch& batch) {
  detail::StepContext& context = detail::StepScope::here("loss");
  const Loss::Term term = impl_->loss.sum(outputs, batch, impl_->weights_of(batch));
  const auto options = term.sum.options().requires_grad(false);
  LossShare share;
  share.sum = term.sum.detach();
  share.count = impl_->loss.counts() ? impl_->loss.count(batch).detach()
                                     : at::scalar_tensor(term.elements, options.dtype(at::kDouble));
  const int64_t per_row = term.per_row.value_or(1);
  check_per_row(context, batch, per_row);
  if (context.metrics == &impl_->train_metrics && context.counts_rows && context.num_micro == 1 &&
      context.number == 0) {
    share.value = term.sum / impl_->total_of_replicas(share.count).to(term.sum.options());
  } else if (context.total.defined()) {
    share.value = term.sum / (context.total * per_row).to(term.sum.options());
  } else if (context.number > 0) {
    share.value = term.sum / (context.number * static_cast<double>(per_row));
  }
  if (!impl_->options.regularization) return share;
  const at::Tensor penalty = impl_->options.regularization();
  share.sum = share.sum + penalty.detach().sum() * share.count.to(share.sum.options());
  if (share.value.defined() && context.is_last()) share.value = share.value + scale_regularization_loss(penalty);
  return share;
}

void Trainer::minimize(const LossShare& share) {
  detail::StepContext& context = detail::StepScope::here("minimize");
  LOCKSTEP_CHECK_VALUE(share.value.defined(), "[Trainer::minimize] there is no loss to differentiate; in test_step ",
                       "there is nothing to minimize");
  const MinimizeOptions options = impl_->minimize_options();
  if (context.num_micro == 1) {
    detail::OptimizerCore::minimize(impl_->cores, share.value, options);
  } else {
    detail::OptimizerCore::accumulate(impl_->cores, share.value, {.scaler = options.scaler});
    if (context.is_last()) detail::OptimizerCore::apply(impl_->cores, options);
  }
  if (context.is_last() && impl_->average) impl_->average->update();
  const at::Tensor value = share.value.detach();
  context.loss = context.loss.defined() ? context.loss + value : value;
}

void Trainer::update_metrics(const Outputs& outputs, const Batch& batch, const LossShare& share) {
  const detail::MetricSet& metrics = *detail::StepScope::here("update_metrics").metrics;
  const at::NoGradGuard no_grad;
  std::optional<PolicyScope> exact;
  if (impl_->options.policy.compute != at::kFloat) exact.emplace(Policy{});
  if (share.sum.defined()) metrics.add_loss(share.sum, share.count);
  if (!batch.targets.empty()) metrics.add(outputs, batch, impl_->weights_of(batch).value_or(at::Tensor()));
}

void Trainer::train_step(const Batch& batch) {
  const Outputs outputs = forward(batch);
  const LossShare share = loss(outputs, batch);
  minimize(share);
  update_metrics(outputs, batch, share);
}

void Trainer::test_step(const Batch& batch) {
  const Outputs outputs = forward(batch);
  update_metrics(outputs, batch, loss(outputs, batch));
}

Outputs Trainer::predict_step(const Batch& batch) { return forward(batch); }

void Trainer::stop(std::string reason, bool save) {
  impl_->stop_reason = std::move(reason);
  impl_->saves_stop = impl_->saves_stop && save;
}

Logs Trainer::results() const { return impl_->train_metrics.results(); }

at::Tensor Trainer::result(const std::string& metric) const { return impl_->train_metrics.result(metric); }

at::Tensor Trainer::evaluation_result(const std::string& metric) const { return impl_->test_metrics.result(metric); }

double Trainer::step_loss() const {
  LOCKSTEP_CHECK_CONTEXT(impl_->last_loss.has_value(), "[Trainer::step_loss] there was no update yet");
  return impl_->strategy.reduce(ReduceOp::Sum, *impl_->last_loss).item<double>();
}

int64_t detail::TrainerSteps::in_epoch(const Trainer& trainer) { return trainer.impl_->progress.step_in_epoch; }

void detail::TrainerSteps::ask_interval_end(Trainer& trainer) { trainer.impl_->wants_interval_end = true; }

bool detail::TrainerSteps::ends_interval(const Trainer& trainer) { return trainer.impl_->ends_interval; }

const std::vector<std::vector<Batch>>& Trainer::last_batches() const { return impl_->last_batches; }

const Strategy& Trainer::strategy() const { return impl_->strategy; }

bool Trainer::is_chief() const { return detail::Access::impl(impl_->strategy).is_chief(); }

int64_t Trainer::num_parameters() const {
  int64_t number = 0;
  for (const auto& module : impl_->models.modules) {
    for (const at::Tensor& parameter : module->all()[0]->parameters()) number += parameter.numel();
  }
  return number;
}

int64_t Trainer::step() const { return impl_->progress.step; }

int64_t Trainer::epoch() const { return impl_->progress.epoch; }

const History& Trainer::history() const { return impl_->progress.history; }

double Trainer::lr(size_t optimizer) const {
  LOCKSTEP_CHECK_VALUE(optimizer < impl_->optimizers.size(),
                       "[Trainer::lr] there is no such optimizer: optimizer=", optimizer,
                       ", optimizers=", impl_->optimizers.size());
  return impl_->optimizers[optimizer]->front().param_groups()[0].options().get_lr();
}

void Trainer::multiply_lr(double factor) {
  LOCKSTEP_CHECK_VALUE(factor > 0, "[Trainer::multiply_lr] the factor must be positive: factor=", factor);
  impl_->progress.lr_factor *= factor;
}

double Trainer::lr_factor() const { return impl_->progress.lr_factor; }

double Trainer::loss_scale() const { return impl_->scaler ? impl_->scaler->scale() : 1; }

int64_t Trainer::num_skipped() const { return impl_->scaler ? impl_->scaler->num_skipped() : 0; }

State Trainer::model_state() const {
  State all;
  for (size_t m = 0; m < impl_->models.modules.size(); ++m) {
    State state = detail::module_state_object(impl_->models.modules[m])->state();
    if (impl_->average) {
      for (const auto& [name, value] : impl_->average->for_module(m)) state.set(name, value);
    }
    if (impl_->models.modules.size() == 1) return state;
    all.add(std::to_string(m), state);
  }
  return all;
}

}  // namespace lockstep
