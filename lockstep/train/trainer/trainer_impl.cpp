#include "lockstep/train/trainer/trainer_impl.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/batchnorm.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/losses.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/state/module_state.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

TrainerOptions checked_options(TrainerOptions options, const detail::TrainedOptimizers& optimizers) {
  LOCKSTEP_CHECK_VALUE(options.accumulate >= 1,
                       "[Trainer] accumulate must be at least 1: accumulate=", options.accumulate);
  const size_t schedules = options.schedules.size();
  LOCKSTEP_CHECK_VALUE(schedules <= 1 || schedules == optimizers.size(),
                       "[Trainer] there must be one schedule for all optimizers, or one for each: schedules=",
                       schedules, ", optimizers=", optimizers.size());
  LOCKSTEP_CHECK_VALUE(!options.clip_norm || *options.clip_norm > 0,
                       "[Trainer] clip_norm must be positive: clip_norm=", *options.clip_norm);
  LOCKSTEP_CHECK_VALUE(!options.clip_value || *options.clip_value > 0,
                       "[Trainer] clip_value must be positive: clip_value=", *options.clip_value);
  LOCKSTEP_CHECK_VALUE(options.policy.compute != at::kHalf || options.policy.parameters == at::kFloat,
                       "[Trainer] float16 needs parameters in float32: parameters=", options.policy.parameters);
  for (const auto& callback : options.callbacks) {
    LOCKSTEP_CHECK_VALUE(callback != nullptr, "[Trainer] a callback is null");
  }
  return options;
}

std::unique_ptr<LossScaler> make_scaler(const TrainerOptions& options) {
  if (options.policy.compute != at::kHalf) return nullptr;
  return std::make_unique<LossScaler>(options.loss_scaler);
}

/// Empty for an optimizer without learning rates.
std::vector<std::vector<double>> rates_of(const detail::TrainedOptimizers& optimizers) {
  std::vector<std::vector<double>> rates;
  for (const auto& optimizer : optimizers) {
    rates.emplace_back();
    try {
      for (const auto& group : optimizer->front().param_groups()) rates.back().push_back(group.options().get_lr());
    } catch (const c10::Error&) {
      rates.back().clear();
    }
  }
  return rates;
}

/// Whether all parts of a batch have rows of the same shapes, so that they have as many losses for each row.
bool have_equal_rows(const std::vector<std::vector<Batch>>& micro) {
  const Batch* first = nullptr;
  for (const std::vector<Batch>& batches : micro) {
    for (const Batch& batch : batches) {
      if (batch.rows() == 0) continue;
      if (first == nullptr) first = &batch;
      const auto is_equal = [](const at::Tensor& a, const at::Tensor& b) {
        return a.dim() > 0 && a.dim() == b.dim() && a.sizes().slice(1) == b.sizes().slice(1);
      };
      if (!std::equal(batch.inputs.begin(), batch.inputs.end(), first->inputs.begin(), first->inputs.end(), is_equal) ||
          !std::equal(batch.targets.begin(), batch.targets.end(), first->targets.begin(), first->targets.end(),
                      is_equal)) {
        return false;
      }
    }
  }
  return true;
}

void check_strategy(const Strategy& strategy, const detail::TrainedModules& models,
                    const detail::TrainedOptimizers& optimizers) {
  const detail::StrategyImpl* const impl = &detail::Access::impl(strategy);
  bool is_same = true;
  for (const auto& module : models.modules) is_same = is_same && module->strategy().get() == impl;
  for (const auto& optimizer : optimizers) is_same = is_same && &optimizer->strategy() == impl;
  LOCKSTEP_CHECK_VALUE(is_same,
                       "[Trainer] model and optimizer must be made under the scope of the trainer's strategy: ",
                       "strategy=", strategy.type_name());
  for (const auto& optimizer : optimizers) {
    LOCKSTEP_CHECK_VALUE(optimizer->gradients() == Gradients::Sum,
                         "[Trainer] optimizers must sum gradients, because losses are divided by the whole batch: ",
                         "gradients=Gradients::Mean; make the optimizer without this option");
  }
}

bool has_batch_norm(const std::vector<std::shared_ptr<detail::ModuleReplicas>>& modules) {
  for (const auto& module : modules) {
    for (const auto& part : module->all()[0]->modules()) {
      if (part->as<torch::nn::BatchNorm1d>() != nullptr || part->as<torch::nn::BatchNorm2d>() != nullptr ||
          part->as<torch::nn::BatchNorm3d>() != nullptr) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void detail::fail_forward_inputs(size_t num_inputs) {
  LOCKSTEP_CHECK_VALUE(false, "[Trainer] the model has no forward() for the inputs of a batch: inputs=", num_inputs,
                       "; it takes so many tensors, at most 4, or a std::vector of them");
  throw std::logic_error("unreachable");
}

State detail::TrainerProgress::state() const {
  State state;
  state.set("step", State::Value(step));
  state.set("epoch", State::Value(epoch));
  state.set("first_epoch", State::Value(first_epoch));
  state.set("step_in_epoch", State::Value(step_in_epoch));
  state.set("has_all_batches", State::Value(has_all_batches));
  state.set("lr_factor", State::Value(lr_factor));
  state.add("history", history.state());
  return state;
}

void detail::TrainerProgress::load_state(const State& state) {
  step = state.integer("step");
  epoch = state.integer("epoch");
  first_epoch = state.integer("first_epoch");
  step_in_epoch = state.integer("step_in_epoch");
  has_all_batches = state.flag("has_all_batches");
  lr_factor = state.number("lr_factor");
  history.load_state(state.below("history"));
}

Trainer::Impl::Impl(Trainer& self, const Strategy& strategy_, detail::TrainedModules models_,
                    detail::TrainedOptimizers optimizers_, Loss loss_, TrainerOptions options_)
    : trainer(self),
      strategy(strategy_),
      models(std::move(models_)),
      optimizers(std::move(optimizers_)),
      loss(std::move(loss_)),
      options(checked_options(std::move(options_), optimizers)),
      class_weights(options.class_weights),
      scaler(make_scaler(options)),
      train_metrics(strategy, options),
      test_metrics(strategy, options),
      first_rates(rates_of(optimizers)),
      may_use_spare_rows(!has_batch_norm(models.modules)),
      train_function([this](const MicroBatches& micro, int64_t rows) { return train_replica(micro, rows); }),
      test_function([this](const Batch& batch) {
        const at::NoGradGuard no_grad;
        const PolicyScope precision(options.policy);
        detail::StepContext context{.metrics = &test_metrics};
        const detail::StepScope scope(context);
        trainer.test_step(batch);
      }),
      predict_function([this](const Batch& batch) {
        const at::NoGradGuard no_grad;
        const PolicyScope precision(options.policy);
        return trainer.predict_step(batch);
      }),
      pure_train(strategy.pure(train_function)),
      pure_test(strategy.pure(test_function)),
      pure_predict(strategy.pure(predict_function)) {
  check_strategy(strategy, models, optimizers);
  check_policy(options.policy);
  for (const auto& module : models.modules) {
    if (options.policy.compute != at::kFloat) check_parameters(options.policy, *module->all()[0]);
  }
  for (const auto& optimizer : optimizers) cores.push_back(optimizer.get());
  if (options.ema_decay) {
    average = std::make_unique<detail::MovingAverage>(strategy, models.modules, *options.ema_decay);
  }
}

void Trainer::Impl::set_rates() {
  for (size_t i = 0; i < optimizers.size(); ++i) {
    if (options.schedules.empty() && progress.lr_factor == 1) continue;
    const std::vector<double>& first = first_rates[i];
    LOCKSTEP_CHECK_VALUE(
        !first.empty(), "[Trainer] schedules and multiply_lr need an optimizer with learning rates: ", "optimizer=", i);
    auto& groups = optimizers[i]->front().param_groups();
    for (size_t g = 0; g < groups.size(); ++g) {
      double rate = first[g];
      if (!options.schedules.empty()) {
        const Schedule& schedule = options.schedules[options.schedules.size() == 1 ? 0 : i];
        rate = schedule(progress.step) * (first[0] == 0 ? 1 : first[g] / first[0]);
      }
      groups[g].options().set_lr(rate * progress.lr_factor);
    }
  }
}

void Trainer::Impl::train(const std::vector<std::vector<Batch>>& micro) {
  set_rates();
  std::vector<MicroBatches> of_replicas(micro[0].size());
  int64_t rows = 0;
  for (const std::vector<Batch>& batches : micro) {
    for (size_t r = 0; r < batches.size(); ++r) {
      rows += batches[r].rows();
      of_replicas[r].push_back(batches[r]);
    }
  }
  // A compiled step counts on the device: numbers of the host would be a part of its program.
  const detail::StrategyImpl& impl = detail::Access::impl(strategy);
  const bool is_known = impl.num_workers() == 1 && !impl.is_traced() && have_equal_rows(micro);
  const PerReplica<MicroBatches> batches(of_replicas);
  last_loss = options.pure ? pure_train(batches, is_known ? rows : -1)
                           : strategy.run(train_function, batches, is_known ? rows : -1);
  last_batches = micro;
  ++progress.step;
  ++progress.step_in_epoch;
  progress.history.steps = progress.step;
}

void Trainer::Impl::test(const std::vector<Batch>& batches) {
  const PerReplica<Batch> of_replicas(batches);
  options.pure ? pure_test(of_replicas) : strategy.run(test_function, of_replicas);
}

std::vector<PerReplica<at::Tensor>> Trainer::Impl::predict(const std::vector<Batch>& batches) {
  const PerReplica<Batch> of_replicas(batches);
  return options.pure ? pure_predict(of_replicas) : strategy.run(predict_function, of_replicas);
}

at::Tensor Trainer::Impl::train_replica(const MicroBatches& micro, int64_t rows) {
  detail::StepContext context{.metrics = &train_metrics, .num_micro = micro.size()};
  find_total(micro, rows, context);
  const PolicyScope precision(options.policy);
  const detail::StepScope scope(context);
  for (; context.micro < context.num_micro; ++context.micro) trainer.train_step(micro[context.micro]);
  LOCKSTEP_CHECK_VALUE(context.loss.defined(), "[Trainer] train_step must call minimize once for each batch");
  return context.loss;
}

void Trainer::Impl::find_total(const MicroBatches& micro, int64_t rows, detail::StepContext& context) const {
  context.counts_rows = !loss.counts();
  if (context.counts_rows && rows >= 0) {
    context.number = static_cast<double>(std::max<int64_t>(rows, 1));
    return;
  }
  if (context.counts_rows && micro.size() == 1) return;  // counted when the losses are known
  at::Tensor total;
  for (const Batch& batch : micro) {
    const at::Tensor own = loss.counts() ? loss.count(batch).detach().to(at::kDouble)
                                         : at::scalar_tensor(batch.rows(), batch.input().options().dtype(at::kDouble));
    total = total.defined() ? total + own : own;
  }
  context.total = total_of_replicas(total);
}

at::Tensor Trainer::Impl::total_of_replicas(at::Tensor total) const {
  if (strategy.num_replicas_in_sync() > 1) total = get_replica_context().all_reduce(ReduceOp::Sum, total);
  return at::where(total.eq(0), at::ones_like(total), total);
}

Outputs Trainer::Impl::forward(const Batch& batch) {
  const bool has_spare = !batch.spare.empty() && (may_use_spare_rows || !models.modules[0]->all()[0]->is_training());
  if (!has_spare || !needs_spare_rows) {
    try {
      return models.forward(batch.inputs);
    } catch (const CollectiveError&) {
      throw;
    } catch (const c10::Error& error) {
      if (!has_spare) throw;
      LOCKSTEP_LOG(Info) << "[Trainer] replicas without rows call the model with a row of another one, because it "
                            "failed without: "
                         << error.what_without_backtrace();
      needs_spare_rows = true;
    }
  }
  Outputs outputs = models.forward(batch.spare);
  for (at::Tensor& output : outputs) {
    output = output.dim() > 0 ? output.narrow(0, 0, 0) : at::zeros_like(output);
  }
  return outputs;
}

std::optional<at::Tensor> Trainer::Impl::weights_of(const Batch& batch) const {
  if (!options.class_weights.defined()) {
    return batch.weights ? std::optional(batch.weights->reshape({-1})) : std::nullopt;
  }
  const at::Tensor& target = batch.target();
  LOCKSTEP_CHECK_VALUE(target.dim() == 1 && at::isIntegralType(target.scalar_type(), /*includeBool=*/false),
                       "[Trainer] class_weights need one class index for each row: target=", target.sizes(),
                       ", dtype=", target.scalar_type());
  // What is no class has no weight of its own: the loss ignores it, or refuses it.
  const at::Tensor of_classes = class_weights.on(target.device(), options.class_weights.scalar_type());
  const at::Tensor is_class = target.ge(0).logical_and(target.lt(of_classes.numel()));
  const at::Tensor classes = target.to(at::kLong).masked_fill(is_class.logical_not(), 0);
  const at::Tensor weights = at::where(is_class, of_classes.index_select(0, classes), at::ones_like(of_classes[0]));
  return batch.weights ? weights * batch.weights->reshape({-1}) : weights;
}

MinimizeOptions Trainer::Impl::minimize_options() const {
  return {.clip_norm = options.clip_norm, .clip_value = options.clip_value, .scaler = scaler.get()};
}

Trainer::Trainer(const Strategy& strategy, detail::TrainedModules models, detail::TrainedOptimizers optimizers,
                 Loss loss, TrainerOptions options) {
  const auto scope = strategy.scope();
  impl_ = std::make_unique<Impl>(*this, strategy, std::move(models), std::move(optimizers), std::move(loss),
                                 std::move(options));
}

Trainer::~Trainer() = default;

}  // namespace lockstep
