#include "tools/train/trained_model.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/state/weights.h"
#include "lockstep/strategy/state/state_of.h"
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

TrainedModel load_run(const std::string& folder) {
  TrainedModel trained{read_plan(folder)};
  LOCKSTEP_CHECK_DATA(std::filesystem::exists(weights_path(folder)), "[train] the run has not ended: folder=\"", folder,
                      "\"; end it with lockstep train --folder ", folder, " --resume");
  trained.weights = tensors_of(load_file(weights_path(folder)));
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
  return extension == ".safetensors" ? load_safetensors(model) : load_torch_script(model, settings);
}

std::shared_ptr<Network> make_trained(const TrainedModel& trained) {
  std::shared_ptr<Network> model = trained.plan.make_model();
  if (!trained.weights.empty()) load_state(model, trained.weights);
  model->eval();
  return model;
}

}  // namespace lockstep::tools
