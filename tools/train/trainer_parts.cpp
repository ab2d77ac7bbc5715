#include "tools/train/trainer_parts.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/policy.h"
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

Policy policy_of(const Settings& settings) {
  const std::string precision = settings.text("precision");
  return {.compute = precision == "bfloat16"  ? torch::kBFloat16
                     : precision == "float16" ? torch::kHalf
                                              : torch::kFloat};
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
  options.policy = policy_of(settings);
  return options;
}

/// Calls `use` with the class and the options of the optimizer.
template <class Use>
auto with_optimizer(const Settings& settings, Use use) {
  using namespace torch::optim;
  const std::string name = settings.text("optimizer");
  const double lr = settings.number("lr");
  const double decay = settings.number("weight-decay");
  if (name == "sgd") {
    return use(std::type_identity<SGD>(), SGDOptions(lr).momentum(settings.number("momentum")).weight_decay(decay));
  }
  if (name == "adamw") return use(std::type_identity<AdamW>(), AdamWOptions(lr).weight_decay(decay));
  if (name == "rmsprop") return use(std::type_identity<RMSprop>(), RMSpropOptions(lr).weight_decay(decay));
  if (name == "adagrad") return use(std::type_identity<Adagrad>(), AdagradOptions(lr).weight_decay(decay));
  return use(std::type_identity<Adam>(), AdamOptions(lr).weight_decay(decay));
}

/// Copies of a row.
torch::Tensor repeated(const torch::Tensor& row, int64_t rows, c10::Device device) {
  return row.to(device).unsqueeze(0).repeat_interleave(rows, 0);
}

}  // namespace

Module<Network> make_replicated_model(const TrainPlan& plan) {
  Module<Network> model = module_from([&] { return plan.make_model(); });
  if (plan.settings.text("model") == "resnet") nn::convert_sync_batch_norm(model);
  return model;
}

std::unique_ptr<Trainer> make_trainer(const Strategy& strategy, const Module<Network>& model, const TrainPlan& plan,
                                      std::vector<std::shared_ptr<Callback>> callbacks) {
  return with_optimizer(plan.settings, [&]<class O>(std::type_identity<O> /*type*/, const auto& options) {
    return std::make_unique<Trainer>(strategy, model, optimizer<O>(model, options), make_loss(plan),
                                     trainer_options(plan, std::move(callbacks)));
  });
}

EstimatedStep make_estimated_step(const TrainPlan& plan, const Example& example, c10::Device device, bool is_float) {
  const std::shared_ptr<Network> network = plan.make_model();
  network->to(device);
  network->train();
  EstimatedStep step;
  step.set_module(*network);
  step.make_batch = [example, device](int64_t rows) -> std::vector<torch::Tensor> {
    const auto& [input, target] = example;
    return {repeated(input, rows, device), repeated(target, rows, device)};
  };
  const Policy policy = is_float ? Policy() : policy_of(plan.settings);
  step.loss = [network, policy, device, loss = make_loss(plan)](const std::vector<torch::Tensor>& batch) {
    const PolicyScope scope(policy, device.type());
    const Loss::Term term =
        loss.sum({network->forward(batch[0])}, {.inputs = {batch[0]}, .targets = {batch[1]}}, std::nullopt);
    return term.sum / std::max<int64_t>(term.elements, 1);
  };
  step.make_optimizer = [settings = plan.settings](std::vector<torch::Tensor> parameters) {
    return with_optimizer(settings, [&]<class O>(std::type_identity<O> /*type*/, const auto& options) {
      return std::unique_ptr<torch::optim::Optimizer>(std::make_unique<O>(std::move(parameters), options));
    });
  };
  return step;
}

}  // namespace lockstep::tools
