#include "tools/train/train_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sstream>

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/state/weights.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/variable/variable.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "tools/runs/json_number.h"
#include "tools/runs/process_gone.h"
#include "tools/train/observers.h"
#include "tools/train/plan.h"
#include "tools/train/trainer_parts.h"

namespace lockstep::tools {
namespace {

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::ostringstream text;
  text << std::put_time(&parts, "%Y%m%d-%H%M%S");
  return text.str();
}

/// A folder that does not exist: runs/mlp-20260102-030405.
std::string usual_folder(const Settings& settings) {
  const std::string stem = std::filesystem::path(settings.text("model")).stem();
  const std::string wanted = "runs/" + stem + "-" + utc_time();
  std::string folder = wanted;
  for (int i = 2; std::filesystem::exists(folder); ++i) folder = wanted + "-" + std::to_string(i);
  return folder;
}

/// What may differ when a run is continued: the parameters are the same for every strategy.
bool may_change(const std::string& name) {
  return name == "strategy" || name == "replicas" || name == "devices" || name == "folder";
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
                         name == "epochs" ? "; more epochs need the schedule constant or exponential"
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

/// ValueError for a setting that was given and changes nothing.
void check_applies(const Settings& given, const TrainPlan& plan) {
  struct Rule {
    const char* name;
    bool applies;
    const char* needs;
  };
  const std::string model = plan.settings.text("model");
  const bool is_gpt = model == "gpt";
  const bool has_names = plan.form.kind != "text" && plan.form.kind != "images";
  const std::vector<Rule> rules{
      {"hidden", model == "mlp" || model == "cnn" || model == "resnet", "the model mlp, cnn or resnet"},
      {"width", is_gpt, "the model gpt"},
      {"layers", is_gpt, "the model gpt"},
      {"heads", is_gpt, "the model gpt"},
      {"length", plan.form.kind == "text", "text"},
      {"image-size", plan.form.is_image, "JPEG or PNG images"},
      {"input-shape", has_names && !plan.form.is_image, "data that are neither text nor JPEG or PNG images"},
      {"target", has_names, "data with names"},
      {"features", has_names, "data with names"},
      {"classes", has_names && plan.form.task == Task::Classes, "data with names and integer classes"},
      {"label-smoothing", plan.settings.text("loss") == "cross_entropy", "the loss cross_entropy"},
      {"momentum", plan.settings.text("optimizer") == "sgd", "the optimizer sgd"},
      {"patience", plan.settings.has("validation"), "--validation"},
  };
  for (const Rule& rule : rules) {
    LOCKSTEP_CHECK_VALUE(rule.applies || !given.has(rule.name), "[train] --", rule.name, " is for ", rule.needs,
                         ": model=", model, ", data=", plan.form.kind, "; leave it out");
  }
  LOCKSTEP_CHECK_VALUE(plan.form.task != Task::Sequence || !given.has("normalize") ||
                           given.text("normalize") == "none" || given.text("normalize") == "auto",
                       "[train] text is not scaled: --normalize=", given.text("normalize"), "; leave it out");
}

constexpr int64_t kLongestFolder = 1000;

/// The folder of the first worker, for all. ValueError where this worker's settings are not those of the first one.
std::string agreed_folder(const Strategy& strategy, const std::string& folder, const TrainPlan& plan) {
  if (folder.size() > kLongestFolder) {
    LOCKSTEP_THROW(c10::ValueError, "[train] the name of the folder is too long: characters=", folder.size());
  }
  Json same = plan.to_json();
  same["settings"].erase("folder");
  // Computed by each worker; the first one's are used.
  same.erase("shift");
  same.erase("scale");
  torch::Tensor own = torch::zeros({kLongestFolder + 1}, torch::kLong);
  own[0] = static_cast<int64_t>(std::hash<std::string>{}(same.dump()));
  for (size_t i = 0; i < folder.size(); ++i) own[static_cast<int64_t>(i) + 1] = static_cast<int64_t>(folder[i]);
  const auto scope = strategy.scope();
  const torch::Tensor first = Variable(own).read_value().cpu();
  LOCKSTEP_CHECK_VALUE(
      first[0].equal(own[0]),
      "[train] all workers must have the same settings and data: this worker's differ from those of the "
      "first; its plan=",
      same.at("settings").dump());
  std::string agreed;
  for (int64_t i = 1; i <= kLongestFolder && first[i].item<int64_t>() != 0; ++i) {
    agreed += static_cast<char>(first[i].item<int64_t>());
  }
  return agreed;
}

int64_t num_parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// The resolved plan for people and programs.
Json description(const TrainPlan& plan, const StrategyPlan& strategy, const std::string& folder) {
  const auto model = plan.make_model();
  int64_t parameter_bytes = 0;
  for (const auto& parameter : model->parameters()) parameter_bytes += parameter.numel() * parameter.element_size();
  const int64_t copies = num_moments(plan.settings);
  const int64_t averages = plan.settings.has("ema") ? parameter_bytes : 0;
  const int64_t batch = plan.settings.integer("batch-size");
  const int64_t replicas = strategy.replicas();
  Json result;
  result["model"] = plan.settings.text("model");
  result["parameters"] = num_parameters(*model);
  result["data"] = plan.form.to_json();
  result["examples"] = plan.examples;
  result["validation_examples"] = plan.validation_examples;
  result["strategy"] = strategy.name;
  result["workers"] = strategy.num_workers;
  result["devices"] = strategy.devices.empty() ? Json("those of the plugin") : Json(strategy.devices);
  result["batch_size"] = batch;
  result["batch_of_a_replica"] = replicas == 0 ? Json(nullptr) : Json((batch + replicas - 1) / replicas);
  result["steps_per_epoch"] = plan.steps_per_epoch();
  result["epochs"] = plan.settings.integer("epochs");
  result["memory"] = {{"parameters_of_a_replica", parameter_bytes},
                      {"gradients_of_a_replica", parameter_bytes},
                      {"moments", copies * parameter_bytes},
                      {"moving_average", averages}};
  result["folder"] = folder;
  result["settings"] = plan.settings.json();
  return result;
}

void print_description(const Json& plan, ResultStyle style) {
  if (style == ResultStyle::Json) return print_result(plan, style);
  for (const auto& [name, value] : plan.items()) {
    if (!value.is_object()) {
      std::cout << name << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << '\n';
      continue;
    }
    std::cout << name << ":\n";
    for (const auto& [key, each] : value.items()) {
      std::cout << "  " << key << ": " << (each.is_string() ? each.get<std::string>() : each.dump())
                << (name == "memory" ? " bytes" : "") << '\n';
    }
  }
}

bool has_checkpoint(const std::string& folder) {
  return std::filesystem::exists(folder) && !detail::list_checkpoints(folder).empty();
}

/// Whether a training has failed here before the end of its first epoch, without a checkpoint.
bool is_failed_start(const std::string& folder) {
  std::ifstream file(folder + "/run.json");
  const Json run = file.good() ? Json::parse(file, nullptr, /*allow_exceptions=*/false) : Json();
  const bool is_lost = run.is_object() && run.value("state", Json()) == "running" && is_process_gone(run);
  if (!run.is_object() || (run.value("state", Json()) != "failed" && !is_lost)) return false;
  const std::string metrics = folder + "/metrics.jsonl";
  return (!std::filesystem::exists(metrics) || std::filesystem::is_empty(metrics)) &&
         !has_checkpoint(checkpoints_path(folder));
}

/// ValueError where a training that begins would replace something.
void check_new_folder(const std::string& folder) {
  if (!std::filesystem::exists(folder)) return;
  LOCKSTEP_CHECK_VALUE(!std::filesystem::exists(plan_path(folder)), "[train] the folder has a run: folder=\"", folder,
                       "\"; continue it with --resume, or choose another --folder");
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_directory(folder), "[train] a file has the name of the folder: folder=\"",
                       folder, "\"; choose another --folder");
  LOCKSTEP_CHECK_VALUE(std::filesystem::is_empty(folder) || is_failed_start(folder),
                       "[train] the folder is not empty: folder=\"", folder, "\"; choose another --folder");
}

/// The chief makes the folder of a run.
void begin_folder(const std::string& folder, const TrainPlan& plan, bool resume) {
  std::filesystem::create_directories(folder);
  const std::string model = plan.settings.text("model");
  if (!resume && is_script_file(model)) std::filesystem::copy_file(model, script_path(folder));
  detail::replace_file(plan_path(folder), plan.to_json().dump(2) + "\n", /*sync=*/false);
}

/// Trains. The plan of a first start that fails before its first checkpoint is removed, so that it can be repeated.
History fit_in_folder(Trainer& trainer, const ExampleDataset& examples, const FitOptions& options,
                      const std::string& folder, const TrainPlan& plan, bool resume) {
  const bool writes = trainer.strategy().extended().should_checkpoint();
  if (writes) begin_folder(folder, plan, resume);
  try {
    return trainer.fit(examples, options);
  } catch (...) {
    if (writes && !resume && !has_checkpoint(checkpoints_path(folder))) {
      std::error_code ignored;
      std::filesystem::remove(plan_path(folder), ignored);
      std::filesystem::remove(script_path(folder), ignored);
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

}  // namespace

int run_training(const TrainRequest& request) {
  const auto [given, settings, saved] = resolve_settings(request);
  torch::manual_seed(static_cast<uint64_t>(settings.integer("seed")));
  const StrategyPlan where = plan_strategy(settings);
  const auto [plan, data] = plan_training(settings, saved);
  check_applies(given, plan);
  std::string folder = settings.has("folder") ? settings.text("folder") : usual_folder(settings);
  if (request.dry_run) {
    print_description(description(plan, where, folder), request.style);
    return 0;
  }
  const Strategy strategy = make_strategy(where, settings);
  if (where.num_workers > 1) folder = agreed_folder(strategy, folder, plan);
  if (!request.resume && strategy.extended().should_checkpoint()) check_new_folder(folder);

  torch::manual_seed(static_cast<uint64_t>(settings.integer("seed")));
  const auto scope = strategy.scope();
  const Module<Network> model = make_replicated_model(plan);
  const auto parameters = model->parameters();
  LOCKSTEP_CHECK_VALUE(
      std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.requires_grad(); }),
      "[train] the model has no parameters that can be trained: model=", settings.text("model"),
      "; save it in Python with requires_grad_()");
  std::vector<std::shared_ptr<Callback>> callbacks;
  if (const auto patience = settings.find_integer("patience")) {
    callbacks.push_back(callbacks::early_stopping({.patience = *patience}));
  }
  const auto observers = make_observers(plan, folder);
  callbacks.insert(callbacks.end(), observers.begin(), observers.end());
  const auto trainer = make_trainer(strategy, model, plan, callbacks);

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
