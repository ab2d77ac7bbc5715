#include "tools/train/trained_model.h"

#include <filesystem>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/state/weights.h"
#include "lockstep/strategy/state/state_of.h"
#include "tools/runs/run_reader.h"
#include "tools/train/script_network.h"

namespace lockstep::tools {
namespace {

/// Tensors alone; the text of the plan is taken out.
State tensors_of(const State& state) {
  State tensors;
  for (const auto& [name, value] : state) {
    if (std::holds_alternative<StateTensor>(value)) tensors.set(name, value);
  }
  return tensors;
}

/// Paths are those of the folder in which the training was started.
void add_sources(TrainedModel& trained, const std::string& start) {
  const Settings& settings = trained.plan.settings;
  std::vector<std::string> files = settings.list("data");
  for (const std::string& file : settings.list("validation")) files.push_back(file);
  const std::string model = settings.has("model") ? settings.text("model") : "mlp";
  if (!is_built_in(model)) files.push_back(model);
  for (const std::string& file : files) {
    trained.sources.push_back(file);
    if (!start.empty()) trained.sources.push_back((std::filesystem::path(start) / file).string());
  }
}

void warn_of_early_end(const RunRecord& record, const TrainPlan& plan) {
  if (record.state == "finished" || record.state == "stopped") return;
  std::cerr << "warning: the run " << (record.state == "running" ? "is at step " : "stopped at step ")
            << summary_of_run(record)["steps"] << " of " << plan.steps_per_epoch() * plan.settings.integer("epochs")
            << ": state=" << record.state << "; continue it with lockstep train --folder " << record.path
            << " --resume\n";
}

TrainedModel load_run(const std::string& folder) {
  TrainedModel trained{read_plan(folder)};
  LOCKSTEP_CHECK_DATA(std::filesystem::exists(weights_path(folder)), "[train] the run has not ended: folder=\"", folder,
                      "\"; end it with lockstep train --folder ", folder, " --resume");
  trained.weights = tensors_of(load_file(weights_path(folder)));
  if (!std::filesystem::exists(folder + "/run.json")) {
    add_sources(trained, "");
    return trained;
  }
  const RunRecord record = read_run(folder);
  add_sources(trained, record.run.value("working_directory", ""));
  warn_of_early_end(record, trained.plan);
  return trained;
}

TrainedModel load_safetensors(const std::string& file) {
  const State state = load_file(file);
  LOCKSTEP_CHECK_DATA(state.has(kPlanInside), "[train] the file was not written by `lockstep export`: file=\"", file,
                      "\"; give the run folder");
  TrainedModel trained{TrainPlan::from_json(Json::parse(state.text(kPlanInside)), "file=\"" + file + "\"")};
  trained.weights = tensors_of(state);
  return trained;
}

TrainedModel load_torch_script(const std::string& file, const Settings& settings) {
  std::string plan_text;
  load_script(file, kPlanInside, &plan_text);
  TrainedModel trained;
  trained.has_form = !plan_text.empty();
  if (trained.has_form) {
    trained.plan = TrainPlan::from_json(Json::parse(plan_text), "file=\"" + file + "\"");
    // The model in the file scales its inputs itself.
    trained.plan.shift = torch::Tensor();
    trained.plan.scale = torch::Tensor();
  } else {
    trained.plan.settings = settings;
    trained.plan.settings.add_defaults();
  }
  trained.plan.settings.set("model", file);
  trained.plan.model_file = file;
  return trained;
}

}  // namespace

TrainedModel load_trained(const std::string& model, const Settings& settings) {
  LOCKSTEP_CHECK_DATA(std::filesystem::exists(model), "[train] there is no such run folder or model: \"", model, "\"");
  if (std::filesystem::is_directory(model)) return load_run(model);
  const std::string extension = std::filesystem::path(model).extension();
  TrainedModel trained = extension == ".safetensors" ? load_safetensors(model) : load_torch_script(model, settings);
  add_sources(trained, "");
  trained.sources.push_back(model);
  return trained;
}

std::shared_ptr<Network> make_trained(const TrainedModel& trained) {
  std::shared_ptr<Network> model = trained.plan.make_model();
  if (!trained.weights.empty()) load_state(model, trained.weights);
  model->eval();
  return model;
}

}  // namespace lockstep::tools
