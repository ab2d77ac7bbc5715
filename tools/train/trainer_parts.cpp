#include "tools/train/trainer_parts.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/nn/sync_batch_norm.h"
#include "lockstep/strategy/optimizer/optimizer.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "lockstep/train/losses/losses.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::tools {
namespace {

Loss make_loss(const TrainPlan& plan) {
  const std::string name = plan.settings.text("loss");
  const double smoothing = plan.settings.number("label-smoothing");
  if (plan.form.task == Task::Sequence) {
    return Loss([smoothing](const torch::Tensor& logits, const torch::Tensor& next) {
      return torch::cross_entropy_loss(logits.transpose(1, 2), next, {}, torch::Reduction::None, -100, smoothing);
    });
  }
  if (name == "cross_entropy") return losses::cross_entropy({.label_smoothing = smoothing});
  if (name == "binary_cross_entropy") return losses::binary_cross_entropy_with_logits();
  if (name == "mae") return losses::mae();
  if (name == "huber") return losses::huber();
  return losses::mse();
}

std::vector<TrackedMetric> make_metrics(const TrainPlan& plan) {
  std::vector<TrackedMetric> result;
  for (const std::string& name : plan.settings.list("metrics")) {
    if (name == "accuracy" && plan.form.task == Task::Numbers) {
      result.emplace_back(metrics::binary_accuracy({.threshold = 0, .name = "accuracy"}));
    } else if (name == "accuracy") {
      result.emplace_back(metrics::sparse_categorical_accuracy("accuracy"));
    } else if (name == "top5_accuracy") {
      result.emplace_back(metrics::top_k_accuracy(5, "top5_accuracy"));
    } else if (name == "perplexity") {
      result.emplace_back(metrics::perplexity());
    } else if (name == "mse") {
      result.emplace_back(metrics::mse());
    } else if (name == "mae") {
      result.emplace_back(metrics::mae());
    } else if (name == "r2") {
      result.emplace_back(metrics::r2({.num_outputs = plan.form.num_outputs}));
    }
  }
  return result;
}

std::vector<Schedule> make_schedules(const TrainPlan& plan) {
  const Settings& settings = plan.settings;
  const std::string name = settings.text("schedule");
  const double lr = settings.number("lr");
  const int64_t warm_up = settings.integer("warm-up");
  const int64_t steps = std::max<int64_t>(1, plan.steps_per_epoch() * settings.integer("epochs") - warm_up);
  Schedule schedule(lr);
  if (name == "cosine") schedule = schedules::cosine(lr, steps);
  if (name == "linear") schedule = schedules::linear(lr, 0, steps);
  if (name == "one_cycle") schedule = schedules::one_cycle(lr, steps);
  if (name == "exponential") schedule = schedules::exponential(lr, 0.95, {.steps = plan.steps_per_epoch()});
  if (warm_up == 0) return {schedule};
  return {schedules::warm_up(warm_up, schedule, {.start_factor = 1.0 / static_cast<double>(warm_up + 1)})};
}

TrainerOptions trainer_options(const TrainPlan& plan, std::vector<std::shared_ptr<Callback>> callbacks) {
  const Settings& settings = plan.settings;
  TrainerOptions options;
  options.metrics = make_metrics(plan);
  options.callbacks = std::move(callbacks);
  options.schedules = make_schedules(plan);
  options.accumulate = settings.integer("accumulate");
  options.clip_norm = settings.find_number("clip-norm");
  options.ema_decay = settings.find_number("ema");
  const std::string precision = settings.text("precision");
  options.policy.compute = precision == "bfloat16"  ? torch::kBFloat16
                           : precision == "float16" ? torch::kHalf
                                                    : torch::kFloat;
  return options;
}

}  // namespace

Module<Network> make_replicated_model(const TrainPlan& plan) {
  Module<Network> model = module_from([&] { return plan.make_model(); });
  if (plan.settings.text("model") == "resnet") nn::convert_sync_batch_norm(model);
  return model;
}

std::unique_ptr<Trainer> make_trainer(const Strategy& strategy, const Module<Network>& model, const TrainPlan& plan,
                                      std::vector<std::shared_ptr<Callback>> callbacks) {
  const Settings& settings = plan.settings;
  const std::string name = settings.text("optimizer");
  const double lr = settings.number("lr");
  const double decay = settings.number("weight-decay");
  const auto with = [&](const auto& optimizer) {
    return std::make_unique<Trainer>(strategy, model, optimizer, make_loss(plan),
                                     trainer_options(plan, std::move(callbacks)));
  };
  using namespace torch::optim;
  if (name == "sgd") {
    return with(optimizer<SGD>(model, SGDOptions(lr).momentum(settings.number("momentum")).weight_decay(decay)));
  }
  if (name == "adamw") return with(optimizer<AdamW>(model, AdamWOptions(lr).weight_decay(decay)));
  if (name == "rmsprop") return with(optimizer<RMSprop>(model, RMSpropOptions(lr).weight_decay(decay)));
  if (name == "adagrad") return with(optimizer<Adagrad>(model, AdagradOptions(lr).weight_decay(decay)));
  return with(optimizer<Adam>(model, AdamOptions(lr).weight_decay(decay)));
}

int64_t num_moments(const Settings& settings) {
  const std::string name = settings.text("optimizer");
  if (name == "sgd") return settings.number("momentum") > 0 ? 1 : 0;
  return name == "adam" || name == "adamw" ? 2 : 1;
}

}  // namespace lockstep::tools
