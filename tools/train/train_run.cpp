#include "tools/train/train_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/state/weights.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "tools/runs/json_number.h"
#include "tools/train/observers.h"
#include "tools/train/plan.h"
#include "tools/train/plan_description.h"
#include "tools/train/setting_checks.h"
#include "tools/train/trainer_parts.h"
#include "tools/train/training_folder.h"

namespace lockstep::tools {
namespace {

/// What may differ when a run is continued: the parameters are the same for every strategy.
bool may_change(const std::string& name) {
  return name == "strategy" || name == "replicas" || name == "devices" || name == "folder" || name == "data" ||
         name == "validation";
}

Settings continued_settings(const Settings& given, const TrainPlan& saved) {
  Settings settings = saved.settings;
  for (const auto& [name, value] : given.json().items()) {
    const Json before = settings.has(name) ? settings.json().at(name) : Json(nullptr);
    if (value == before) continue;
    const std::string schedule = saved.settings.text("schedule");
    const bool more_epochs = name == "epochs" && value.get<int64_t>() >= before.get<int64_t>() &&
                             (schedule == "constant" || schedule == "exponential");
    LOCKSTEP_CHECK_VALUE(may_change(name) || more_epochs, "[train] the run was begun with another value: --", name, "=",
                         value.dump(), ", value of the run=", before.dump(),
                         name == "epochs"
                             ? "; a run can only have more epochs, and with a schedule that is constant or "
                               "exponential: leave it out, or begin another run"
                             : "; leave it out, or begin another run");
    settings.set(name, value);
  }
  return settings;
}

/// What was asked for, the settings that follow, and the plan of the run that is continued.
struct ResolvedSettings {
  Settings given;
  Settings settings;
  std::optional<TrainPlan> saved;
};

ResolvedSettings resolve_settings(const TrainRequest& request) {
  Settings settings = Settings::from_flags(request.flags);
  if (!request.config.empty()) {
    settings.add_missing(Settings::from_json(read_config(request.config), "file=\"" + request.config + "\""));
  }
  const Settings given = settings;
  if (!request.resume) {
    settings.add_defaults();
    return {given, settings, std::nullopt};
  }
  LOCKSTEP_CHECK_VALUE(settings.has("folder"), "[train] --resume needs --folder: the folder of the run to continue");
  TrainPlan saved = read_plan(settings.text("folder"));
  return {given, continued_settings(given, saved), saved};
}

/// Trains. The plan of a first start that fails before its first checkpoint is removed, so that it can be repeated. The
/// parameters of an earlier end are not those of the run while it goes on.
History fit_in_folder(Trainer& trainer, const ExampleDataset& examples, const FitOptions& options,
                      const std::string& folder, const TrainPlan& plan, bool resume) {
  const bool writes = trainer.strategy().extended().should_checkpoint();
  const std::string weights = weights_path(folder);
  const std::string earlier_weights = weights + ".before";
  std::error_code ignored;
  if (writes) {
    begin_folder(folder, plan, resume);
    std::filesystem::rename(weights, earlier_weights, ignored);
  }
  try {
    return trainer.fit(examples, options);
  } catch (...) {
    if (writes && resume) std::filesystem::rename(earlier_weights, weights, ignored);
    if (writes && !resume && !has_checkpoint(checkpoints_path(folder))) {
      std::filesystem::remove(plan_path(folder), ignored);
      std::filesystem::remove(script_path(folder), ignored);
      if (!std::filesystem::exists(folder + "/run.json")) std::filesystem::remove(folder + "/run.lock", ignored);
    }
    throw;
  }
}

/// All workers call it: others may have a part of the values.
State whole_tensors(const State& state) {
  State whole;
  for (const auto& [name, value] : state) {
    if (const auto* tensor = std::get_if<StateTensor>(&value)) whole.set(name, tensor->read());
  }
  return whole;
}

Json summary(const History& history, const TrainPlan& plan, const Trainer& trainer, double seconds, bool is_resumed) {
  Json result;
  if (!history.epochs.empty()) {
    for (const auto& [name, value] : history.epochs.back()) result[name] = json_number(value);
  }
  result["epochs"] = history.epochs.size();
  result["steps"] = history.steps;
  result["replicas"] = trainer.strategy().num_replicas_in_sync();
  result["seconds"] = std::round(seconds * 1000) / 1000;
  const auto epochs = static_cast<int64_t>(history.epochs.size());
  if (!is_resumed) result["examples_per_second"] = std::round(static_cast<double>(plan.examples * epochs) / seconds);
  result["end"] = to_string(history.end);
  if (!history.reason.empty()) result["reason"] = history.reason;
  return result;
}

/// Makes what is trained, and the callbacks; nothing is written.
std::unique_ptr<Trainer> make_training(const Strategy& strategy, const TrainPlan& plan, const std::string& folder) {
  const auto scope = strategy.scope();
  const Module<Network> model = make_replicated_model(plan);
  const auto parameters = model->parameters();
  LOCKSTEP_CHECK_VALUE(
      std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.requires_grad(); }),
      "[train] the model has no parameters that can be trained: model=", plan.settings.text("model"),
      "; save it in Python with requires_grad_()");
  std::vector<std::shared_ptr<Callback>> callbacks;
  if (const auto patience = plan.settings.find_integer("patience")) {
    callbacks.push_back(callbacks::early_stopping({.patience = *patience}));
  }
  const auto observers = make_observers(plan, folder);
  callbacks.insert(callbacks.end(), observers.begin(), observers.end());
  return make_trainer(strategy, model, plan, callbacks);
}

}  // namespace

int run_training(const TrainRequest& request) {
  const auto [given, settings, saved] = resolve_settings(request);
  torch::manual_seed(static_cast<uint64_t>(settings.integer("seed")));
  const StrategyPlan where = plan_strategy(settings);
  const progress::Display display(!request.quiet && where.worker == 0);
  const auto [plan, data] = plan_training(settings, saved);
  check_settings(given, plan);
  const std::string time = request.dry_run ? "TIME" : utc_time();
  std::string folder = settings.has("folder") ? settings.text("folder") : usual_folder(settings, time);
  const Strategy strategy = request.dry_run ? make_lone_strategy(where, settings) : make_strategy(where, settings);
  if (where.num_workers > 1 && !request.dry_run) folder = agreed_folder(strategy, folder, plan);
  if (!request.resume && strategy.extended().should_checkpoint()) check_new_folder(folder);
  if (request.dry_run) {
    make_training(strategy, plan, folder);
    if (where.worker == 0) print_description(describe_training(plan, data, where, strategy, folder), request.style);
    return 0;
  }

  torch::manual_seed(static_cast<uint64_t>(settings.integer("seed")));
  const auto scope = strategy.scope();
  const auto trainer = make_training(strategy, plan, folder);
  const int64_t batch_size = settings.integer("batch-size");
  FitOptions options;
  options.epochs = settings.integer("epochs");
  if (data.validation) options.validation = TrainerInput(batches_of(*data.validation, batch_size));
  options.checkpoint_folder = checkpoints_path(folder);
  options.checkpoint = {.keep = 2, .every_steps = settings.integer("checkpoint-every")};
  options.verbose = !request.quiet;
  const auto begin = std::chrono::steady_clock::now();
  const auto examples = batches_of(data.training, batch_size, std::min(settings.integer("shuffle"), plan.examples));
  const History history = fit_in_folder(*trainer, examples, options, folder, plan, request.resume);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  const State weights = whole_tensors(trainer->model_state());
  if (trainer->is_chief()) {
    save_safetensors(weights, weights_path(folder));
    Json result = summary(history, plan, *trainer, seconds.count(), request.resume);
    result["folder"] = folder;
    print_result(result, request.style);
  }
  return history.exit_status();
}

}  // namespace lockstep::tools
