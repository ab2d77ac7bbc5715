#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolve_cluster.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "lockstep/state/weights.h"
#include "lockstep/strategy/state/state_of.h"
#include "tools/train/output_file.h"
#include "tools/train/script_network.h"
#include "tools/train/setting_checks.h"
#include "tools/train/train_run.h"
#include "tools/train/trained_model.h"
#include "tools/train/trainer_parts.h"

namespace lockstep::tools {
namespace {

/// A trainer of a trained model, and the data that it is used on.
struct ModelUse {
  TrainPlan plan;
  OpenedData opened;
  Strategy strategy;
  std::unique_ptr<Trainer> trainer;
  int64_t batch_size = 0;
};

/// Where a model is used is said by the command; everything else by the model.
Settings settings_of_use(const Settings& given, const TrainPlan& plan) {
  Settings settings = plan.settings;
  Json values = settings.json();
  for (const char* name : {"strategy", "replicas", "devices", "data", "validation"}) values.erase(name);
  settings = Settings::from_json(values, "the plan");
  for (const auto& [name, value] : given.json().items()) settings.set(name, value);
  return settings;
}

void check_given(const Settings& given, const TrainedModel& trained) {
  if (!trained.has_form) return;
  for (const auto& [name, value] : given.json().items()) {
    const bool is_free = name == "data" || name == "strategy" || name == "replicas" || name == "devices" ||
                         name == "batch-size" || name == "metrics";
    const bool is_same = trained.plan.settings.has(name) && trained.plan.settings.json().at(name) == value;
    const bool is_target =
        name == "target" && value.is_string() && trained.plan.form.target == value.get<std::string>();
    LOCKSTEP_CHECK_VALUE(is_free || is_same || is_target, "[train] the model was trained with another value: --", name,
                         "=", value.dump(), "; leave it out");
  }
}

/// Says what a model of somebody else computes, from the settings and the data.
void complete_plan(TrainPlan& plan, const OpenedData& opened) {
  plan.form = opened.form;
  if (plan.form.task == Task::Sequence) return;
  const std::string mode = plan.settings.text("normalize");
  LOCKSTEP_CHECK_VALUE(mode != "standard",
                       "[train] the scaling of a model is known only from its training; use "
                       "--normalize none or unit");
  plan.shift = torch::zeros({1});
  plan.scale = torch::full({1}, mode == "unit" ? 1.0 / 255 : 1.0);
}

ModelUse use_model(const ModelRequest& request, bool needs_target) {
  const Settings given = Settings::from_flags(request.flags);
  TrainedModel trained = load_trained(request.model, given);
  if (!request.output.empty()) check_output(request.output, "predict", trained.sources, request.force);
  check_given(given, trained);
  trained.plan.settings = settings_of_use(given, trained.plan);
  OpenedData opened = open_data(
      given.list("data"), trained.plan.settings,
      {.form = trained.has_form ? std::optional(trained.plan.form) : std::nullopt, .needs_target = needs_target});
  if (!trained.has_form) complete_plan(trained.plan, opened);
  choose_loss(trained.plan);
  check_metrics(trained.plan.settings);
  const StrategyPlan where = plan_strategy(trained.plan.settings);
  LOCKSTEP_CHECK_VALUE(needs_target || where.num_workers == 1,
                       "[predict] rows are in order with one worker only: workers=", where.num_workers);
  const Strategy strategy = make_strategy(where, trained.plan.settings);
  const auto scope = strategy.scope();
  const Module<Network> model = make_replicated_model(trained.plan);
  if (!trained.weights.empty()) load_state(model, trained.weights);
  // The weights are those that were evaluated: the averages, where there were some.
  Json values = trained.plan.settings.json();
  values.erase("ema");
  trained.plan.settings = Settings::from_json(values, "the plan");
  trained.plan.examples = opened.count;
  auto trainer = make_trainer(strategy, model, trained.plan);
  const int64_t batch_size = trained.plan.settings.integer("batch-size");
  return {trained.plan, std::move(opened), strategy, std::move(trainer), batch_size};
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
  return result + "\"";
}

void write_classes(std::ostream& file, const torch::Tensor& outputs, const DataForm& form,
                   const std::vector<std::string>& names) {
  const auto [best, which] = torch::softmax(outputs, 1).max(1);
  file << "class,probability" << (names.empty() ? "" : ",file") << '\n';
  for (int64_t row = 0; row < outputs.size(0); ++row) {
    const auto number = which[row].item<int64_t>();
    const bool has_name = number < static_cast<int64_t>(form.class_names.size());
    file << (has_name ? csv_field(form.class_names[number]) : std::to_string(number)) << ',' << best[row].item<float>()
         << (names.empty() ? "" : "," + csv_field(names[static_cast<size_t>(row)])) << '\n';
  }
}

/// The most likely characters after each one.
void write_sequences(std::ostream& file, const torch::Tensor& outputs) {
  const torch::Tensor next = outputs.argmax(2).to(torch::kLong).contiguous();
  file << "next\n";
  for (int64_t row = 0; row < next.size(0); ++row) {
    std::string text;
    for (int64_t i = 0; i < next.size(1); ++i) text += static_cast<char>(next[row][i].item<int64_t>());
    file << csv_field(text) << '\n';
  }
}

void write_numbers(std::ostream& file, const torch::Tensor& outputs) {
  for (int64_t i = 0; i < outputs.size(1); ++i) file << (i > 0 ? "," : "") << "output" << i;
  file << '\n';
  for (int64_t row = 0; row < outputs.size(0); ++row) {
    for (int64_t i = 0; i < outputs.size(1); ++i) file << (i > 0 ? "," : "") << outputs[row][i].item<float>();
    file << '\n';
  }
}

void write_predictions_csv(const std::string& path, const torch::Tensor& outputs, const TrainPlan& plan,
                           const std::vector<std::string>& names) {
  std::ofstream file(path);
  file.precision(9);
  if (plan.form.task == Task::Classes) {
    write_classes(file, outputs, plan.form, names);
  } else if (plan.form.task == Task::Sequence) {
    write_sequences(file, outputs);
  } else {
    write_numbers(file, plan.settings.text("loss") == "binary_cross_entropy" ? outputs.sigmoid() : outputs);
  }
  file << std::flush;
  LOCKSTEP_CHECK_DATA(file.good(), "[predict] the file cannot be written: file=\"", path, "\"");
}

/// One of several workers does.
bool shows_progress(const ModelRequest& request) {
  const auto place = worker_place(*resolve_cluster());
  return !request.quiet && (!place || place->index == 0);
}

}  // namespace

void run_evaluation(const ModelRequest& request) {
  const progress::Display display(shows_progress(request));
  const ModelUse use = use_model(request, true);
  const Logs logs = use.trainer->evaluate(batches_of(use.opened.part(nullptr, true), use.batch_size));
  Json result;
  for (const auto& [name, value] : logs) result[name] = value;
  result["examples"] = use.opened.count;
  if (use.trainer->is_chief()) print_result(result, request.style);
}

void run_prediction(const ModelRequest& request) {
  const std::string extension = std::filesystem::path(request.output).extension();
  LOCKSTEP_CHECK_VALUE(extension == ".csv" || extension == ".npz",
                       "[predict] the output is a .csv or .npz file: output=\"", request.output, "\"");
  check_output(request.output, "predict", Settings::from_flags(request.flags).list("data"), request.force);
  const progress::Display display(shows_progress(request));
  const ModelUse use = use_model(request, false);
  const torch::Tensor outputs =
      use.trainer->predict(batches_of(use.opened.part(nullptr, true), use.batch_size)).to(torch::kFloat).contiguous();
  OutputFile file(request.output, "predict", request.force);
  if (extension == ".csv") {
    write_predictions_csv(file.path(), outputs, use.plan, use.opened.names);
  } else {
    std::map<std::string, torch::Tensor> arrays{{"output", outputs}};
    if (use.plan.form.task != Task::Numbers) arrays["class"] = outputs.argmax(-1);
    data::save_npz(file.path(), arrays);
  }
  file.keep();
  print_result({{"file", request.output}, {"rows", outputs.size(0)}}, request.style);
}

void run_export(const ModelRequest& request) {
  const std::string extension = std::filesystem::path(request.output).extension();
  LOCKSTEP_CHECK_VALUE(extension == ".pt" || extension == ".safetensors",
                       "[export] the output is a .pt (TorchScript) or .safetensors file: output=\"", request.output,
                       "\"");
  const TrainedModel trained = load_trained(request.model, {});
  check_output(request.output, "export", trained.sources, request.force);
  const std::shared_ptr<Network> model = make_trained(trained);
  Json values = trained.plan.to_json();
  for (const char* name : {"data", "validation", "folder"}) values["settings"].erase(name);  // paths of this machine
  const std::string plan = trained.has_form ? values.dump() : "";
  OutputFile file(request.output, "export", request.force);
  if (extension == ".pt") {
    torch::jit::ExtraFilesMap extra;
    if (!plan.empty()) extra[kPlanInside] = plan;
    to_script(*model).save(file.path(), extra);
  } else {
    LOCKSTEP_CHECK_VALUE(trained.plan.model_file.empty(),
                         "[export] a TorchScript model cannot be read back from "
                         "safetensors alone: model=\"",
                         request.model, "\"; write a .pt file");
    State state = state_of(model);
    if (!plan.empty()) state.set(kPlanInside, plan);
    save_safetensors(state, file.path());
  }
  file.keep();
  print_result({{"file", request.output}, {"bytes", std::filesystem::file_size(request.output)}}, request.style);
}

}  // namespace lockstep::tools
