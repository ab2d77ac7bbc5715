#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/state/module_state.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/trainer/model_mode.h"
#include "lockstep/train/trainer/trainer.h"
#include "lockstep/train/trainer/trainer_impl.h"

namespace lockstep {
namespace {

/// While it lives, the models are as they are evaluated. `end` puts the parameters back where they were averages.
class Evaluated {
 public:
  Evaluated(const detail::TrainedModules& models, const detail::MovingAverage* average) : mode_(models.modules) {
    if (average != nullptr) swap_.emplace(*average);
  }
  void end() {
    if (swap_) swap_->end();
  }

 private:
  detail::EvaluationMode mode_;
  std::optional<detail::MovingAverage::Swap> swap_;
};

/// The rows of an output of all replicas, on the CPU.
at::Tensor gathered_rows(const Strategy& strategy, const PerReplica<at::Tensor>& output) {
  std::vector<at::Tensor> parts = strategy.local_results(output);
  for (const at::Tensor& part : parts) {
    LOCKSTEP_CHECK_VALUE(part.dim() > 0, "[Trainer::predict] outputs must have rows: dimensions=0");
  }
  if (detail::Access::impl(strategy).num_workers() > 1) return strategy.gather(output, 0).cpu();
  for (at::Tensor& part : parts) part = part.cpu();
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

}  // namespace

std::optional<Logs> Trainer::evaluate_unless(const TrainerInput& data, const std::function<bool()>& ends) {
  const auto scope = impl_->strategy.scope();
  const auto& callbacks = impl_->options.callbacks;
  const auto batches = data.distribute(impl_->strategy);
  LOCKSTEP_CHECK_VALUE(!batches->cardinality().is_infinite(),
                       "[Trainer::evaluate] the dataset must have an end; use take(n)");
  for (const auto& callback : callbacks) callback->on_evaluate_begin(*this);
  impl_->test_metrics.reset();
  Evaluated evaluated(impl_->models, impl_->average.get());
  const auto iterator = batches->iterator();
  // A part of an epoch has no lines of its own.
  progress::Task task("evaluating", {.unit = "steps",
                                     .total = batches->cardinality().size().value_or(0),
                                     .kind = ends ? progress::Kind::Loop : progress::Kind::Work});
  int64_t step = 0;
  for (auto next = iterator->next(); !next.empty(); next = iterator->next()) {
    impl_->test(next);
    task.set(++step);
    for (const auto& callback : callbacks) callback->on_evaluate_step_end(*this, step);
    if (ends && ends()) return std::nullopt;
  }
  LOCKSTEP_CHECK_VALUE(step > 0, "[Trainer::evaluate] the dataset has no batches");
  evaluated.end();
  Logs logs = impl_->test_metrics.results();
  for (const auto& callback : callbacks) callback->on_evaluate_end(*this, logs);
  return logs;
}

Logs Trainer::evaluate(const TrainerInput& data) { return *evaluate_unless(data, {}); }

Outputs Trainer::predict_all(const TrainerInput& data) {
  const auto scope = impl_->strategy.scope();
  const auto& callbacks = impl_->options.callbacks;
  const auto batches = data.distribute(impl_->strategy);
  LOCKSTEP_CHECK_VALUE(!batches->cardinality().is_infinite(),
                       "[Trainer::predict] the dataset must have an end; use take(n)");
  for (const auto& callback : callbacks) callback->on_predict_begin(*this);
  Evaluated evaluated(impl_->models, impl_->average.get());
  std::vector<std::vector<at::Tensor>> parts;
  const auto iterator = batches->iterator();
  progress::Task task("predicting", {.unit = "steps", .total = batches->cardinality().size().value_or(0)});
  int64_t step = 0;
  for (auto next = iterator->next(); !next.empty(); next = iterator->next()) {
    const std::vector<PerReplica<at::Tensor>> outputs = impl_->predict(next);
    parts.resize(outputs.size());
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(gathered_rows(impl_->strategy, outputs[i]));
    task.set(++step);
    for (const auto& callback : callbacks) callback->on_predict_step_end(*this, step);
  }
  LOCKSTEP_CHECK_VALUE(step > 0, "[Trainer::predict] the dataset has no batches");
  evaluated.end();
  Outputs all;
  for (const std::vector<at::Tensor>& of_output : parts) all.push_back(at::cat(of_output));
  for (const auto& callback : callbacks) callback->on_predict_end(*this);
  return all;
}

at::Tensor Trainer::predict(const TrainerInput& data) { return predict_all(data).at(0); }

std::vector<Checkpoint::Entry> Trainer::checkpoint_entries() {
  std::vector<Checkpoint::Entry> entries;
  const auto numbered = [](const char* name, size_t index, size_t count) {
    return count == 1 ? std::string(name) : name + std::to_string(index);
  };
  const auto& modules = impl_->models.modules;
  for (size_t m = 0; m < modules.size(); ++m) {
    entries.emplace_back(numbered("model", m, modules.size()), detail::module_state_object(modules[m]));
  }
  const auto& optimizers = impl_->optimizers;
  for (size_t i = 0; i < optimizers.size(); ++i) {
    entries.emplace_back(numbered("optimizer", i, optimizers.size()), optimizers[i]->state_object());
  }
  entries.emplace_back("trainer", impl_->progress);
  entries.emplace_back("metrics", impl_->train_metrics);
  if (impl_->average) entries.emplace_back("average", *impl_->average);
  if (impl_->scaler) entries.emplace_back("loss_scaler", *impl_->scaler);
  const auto& callbacks = impl_->options.callbacks;
  for (size_t i = 0; i < callbacks.size(); ++i) entries.emplace_back("callback" + std::to_string(i), *callbacks[i]);
  return entries;
}

}  // namespace lockstep
