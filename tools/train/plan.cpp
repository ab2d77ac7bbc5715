#include "tools/train/plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "tools/command/nearest.h"
#include "tools/train/data_checksum.h"
#include "tools/train/input_scaling.h"
#include "tools/train/script_network.h"

namespace lockstep::tools {
namespace {

constexpr int64_t kPlanFormat = 1;

/// Chooses which examples are held back: always the same for a seed.
std::shared_ptr<const std::vector<bool>> choose_held_back(int64_t count, double part, uint64_t seed) {
  auto held_back = std::make_shared<std::vector<bool>>(count, false);
  std::vector<int64_t> order(count);
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  std::mt19937_64 random(seed);
  const auto chosen = std::max<int64_t>(1, std::llround(static_cast<double>(count) * part));
  for (int64_t i = 0; i < chosen; ++i) {
    std::swap(order[i], order[i + static_cast<int64_t>(random() % static_cast<uint64_t>(count - i))]);
    (*held_back)[order[i]] = true;
  }
  LOCKSTEP_CHECK_VALUE(chosen < count, "[train] --validation leaves no examples to train with: examples=", count,
                       ", held back=", chosen);
  return held_back;
}

std::optional<double> as_part(const std::string& text) {
  double part = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, part);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  LOCKSTEP_CHECK_VALUE(part > 0 && part < 1, "[train] --validation is a file or a part between 0 and 1: value=", text);
  return part;
}

void choose_scaling(TrainPlan& plan, const ExamplePart& training) {
  if (plan.form.task == Task::Sequence) return;
  std::string mode = plan.settings.text("normalize");
  if (mode == "auto") {
    const bool is_script = is_script_file(plan.settings.text("model"));
    // Models of files scale their inputs themselves.
    mode = is_script ? "none" : plan.form.is_image ? "unit" : "standard";
    plan.settings.set("normalize", mode);
  }
  const InputScaling scaling = input_scaling(mode, plan.form, training);
  plan.shift = scaling.shift;
  plan.scale = scaling.scale;
}

/// ValueError where a model of `lockstep export` was trained for other data.
void check_script_form(const TrainPlan& plan) {
  const std::string model = plan.settings.text("model");
  if (!is_script_file(model)) return;
  std::string text;
  load_script(model, kPlanInside, &text);
  if (text.empty()) return;
  const DataForm form = TrainPlan::from_json(Json::parse(text), "file=\"" + model + "\"").form;
  LOCKSTEP_CHECK_VALUE(
      form.input_shape == plan.form.input_shape, "[train] the model takes examples of another shape: model=\"", model,
      "\", shape=", at::IntArrayRef(form.input_shape), ", shape of the data=", at::IntArrayRef(plan.form.input_shape),
      "; give --input-shape, --image-size, --length or --features");
  LOCKSTEP_CHECK_VALUE(form.task == plan.form.task && form.outputs() >= plan.form.outputs(),
                       "[train] the model was made for other targets: model=\"", model, "\", outputs=", form.outputs(),
                       ", needed=", plan.form.outputs(), "; give --loss, or another model");
}

Json values_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const torch::Tensor flat = tensor.flatten().to(torch::kDouble);
  return {{"shape", tensor.sizes().vec()},
          {"dtype", tensor.scalar_type() == torch::kDouble ? "float64" : "float32"},
          {"values", std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel())}};
}

torch::Tensor tensor_of(const Json& json) {
  if (json.is_null()) return {};
  const auto dtype = json.value("dtype", "float32") == "float64" ? torch::kDouble : torch::kFloat;
  return torch::tensor(json.at("values").get<std::vector<double>>(), torch::kDouble)
      .to(dtype)
      .reshape(json.at("shape").get<std::vector<int64_t>>());
}

/// What a run trains with, and what it is evaluated on.
TrainData split_data(TrainPlan& plan, const OpenedData& opened) {
  const std::vector<std::string> validation = plan.settings.list("validation");
  plan.data_checksum = data_checksum(plan.settings.list("data"));
  plan.examples = opened.count;
  if (validation.empty()) return {opened.part(nullptr, true), std::nullopt};
  if (const auto part = validation.size() == 1 ? as_part(validation[0]) : std::nullopt) {
    const auto seed = static_cast<uint64_t>(plan.settings.integer("seed"));
    const auto held_back = choose_held_back(opened.count, *part, seed);
    plan.validation_examples = std::count(held_back->begin(), held_back->end(), true);
    plan.examples -= plan.validation_examples;
    return {opened.part(held_back, false), opened.part(held_back, true)};
  }
  const OpenedData other = open_data(validation, plan.settings, {.form = plan.form});
  plan.settings.set("validation", absolute_paths(validation));
  plan.validation_checksum = data_checksum(validation);
  plan.validation_examples = other.count;
  return {opened.part(nullptr, true), other.part(nullptr, true)};
}

/// ValueError where a run is continued with other data than those that it began with.
void check_same_data(const TrainPlan& plan, const TrainPlan& saved) {
  const bool is_known = !saved.data_checksum.empty();
  const bool is_same =
      !is_known || (plan.data_checksum == saved.data_checksum && plan.validation_checksum == saved.validation_checksum);
  LOCKSTEP_CHECK_VALUE(
      is_same && plan.examples == saved.examples && plan.validation_examples == saved.validation_examples,
      "[train] the data have changed since the run began: examples=", plan.examples,
      ", examples of the run=", saved.examples, ", for validation=", plan.validation_examples,
      ", of the run=", saved.validation_examples, ", data=\"", plan.data_checksum, "\", data of the run=\"",
      saved.data_checksum, "\", validation=\"", plan.validation_checksum, "\", of the run=\"",
      saved.validation_checksum, "\"; give the data of the run with --data and --validation, or begin another run");
}

}  // namespace

void choose_loss(TrainPlan& plan) {
  Settings& settings = plan.settings;
  const bool is_numbers = plan.form.task == Task::Numbers;
  if (!settings.has("loss")) settings.set("loss", is_numbers ? "mse" : "cross_entropy");
  const std::string loss = settings.text("loss");
  if (!settings.has("metrics")) {
    const char* usual = is_numbers ? (loss == "binary_cross_entropy" ? "accuracy" : "mae") : "accuracy";
    settings.set("metrics", std::vector<std::string>{usual});
  }
  for (const std::string& metric : settings.list("metrics")) {
    const bool of_classes = metric == "accuracy" || metric == "top5_accuracy" || metric == "perplexity";
    const bool is_binary = loss == "binary_cross_entropy" && metric == "accuracy";
    LOCKSTEP_CHECK_VALUE(metric == "none" || is_binary || of_classes != is_numbers, "[train] the metric ", metric,
                         " is for ", of_classes ? "classes" : "numbers", ": loss=", loss, "; use ",
                         is_numbers ? "mse, mae or r2" : "accuracy, top5_accuracy or perplexity");
  }
  LOCKSTEP_CHECK_VALUE(loss != "binary_cross_entropy" || plan.form.num_outputs == 1,
                       "[train] binary_cross_entropy learns one number, 0 or 1: values=", plan.form.num_outputs);
  if (!settings.has("lr")) {
    const std::string optimizer = settings.text("optimizer");
    settings.set("lr", optimizer == "sgd" ? 0.05 : optimizer == "adagrad" ? 0.01 : 0.001);
  }
}

int64_t TrainPlan::steps_per_epoch() const {
  const int64_t batches = (examples + settings.integer("batch-size") - 1) / settings.integer("batch-size");
  return (batches + settings.integer("accumulate") - 1) / settings.integer("accumulate");
}

std::shared_ptr<Network> TrainPlan::make_model() const {
  std::shared_ptr<Network> network = make_network(network_plan(settings, form, model_file));
  if (!shift.defined()) return network;
  return std::make_shared<ScaledNetwork>(network, shift, scale, form.input_shape);
}

Json TrainPlan::to_json() const {
  return {{"format", kPlanFormat},
          {"settings", settings.json()},
          {"data", form.to_json()},
          {"examples", examples},
          {"validation_examples", validation_examples},
          {"data_checksum", data_checksum},
          {"validation_checksum", validation_checksum},
          {"shift", values_of(shift)},
          {"scale", values_of(scale)}};
}

TrainPlan TrainPlan::from_json(const Json& json, const std::string& place) {
  try {
    LOCKSTEP_CHECK_DATA(json.at("format") == kPlanFormat, "[train] a plan of another format: ", place,
                        ", format=", json.at("format").dump(), ", known=", kPlanFormat);
    TrainPlan plan;
    plan.settings = Settings::from_json(json.at("settings"), place);
    plan.form = DataForm::from_json(json.at("data"));
    plan.examples = json.at("examples");
    plan.validation_examples = json.at("validation_examples");
    plan.data_checksum = json.value("data_checksum", "");
    plan.validation_checksum = json.value("validation_checksum", "");
    plan.shift = tensor_of(json.at("shift"));
    plan.scale = tensor_of(json.at("scale"));
    return plan;
  } catch (const Json::exception& error) {
    LOCKSTEP_THROW(DataError, "[train] the plan is damaged: ", place, ", ", error.what());
  }
}

PlannedTraining plan_training(Settings settings, const std::optional<TrainPlan>& saved) {
  TrainPlan plan;
  plan.settings = std::move(settings);
  const std::vector<std::string> paths = plan.settings.list("data");
  const OpenedData opened =
      open_data(paths, plan.settings, {.form = saved ? std::optional(saved->form) : std::nullopt});
  plan.settings.set("data", absolute_paths(paths));
  plan.form = opened.form;
  TrainData examples = split_data(plan, opened);
  choose_loss(plan);
  if (saved) {
    check_same_data(plan, *saved);
    plan.shift = saved->shift;
    plan.scale = saved->scale;
    plan.model_file = saved->model_file;
  } else {
    check_script_form(plan);
    choose_scaling(plan, examples.training);
  }
  const int64_t buffer = plan.settings.integer("shuffle");
  if (opened.is_stream && buffer > 0 && buffer < plan.examples) {
    LOCKSTEP_LOG(Warn) << "[train] records are mixed with those near them only: --shuffle=" << buffer
                       << ", records=" << plan.examples
                       << "; give a larger --shuffle, or write the records in random order";
  }
  return {std::move(plan), std::move(examples)};
}

std::string plan_path(const std::string& folder) { return folder + "/plan.json"; }
std::string checkpoints_path(const std::string& folder) { return folder + "/checkpoints"; }
std::string weights_path(const std::string& folder) { return folder + "/model.safetensors"; }
std::string script_path(const std::string& folder) { return folder + "/model.pt"; }

TrainPlan read_plan(const std::string& folder) {
  const std::string path = plan_path(folder);
  std::ifstream file(path);
  LOCKSTEP_CHECK_DATA(file.good(), "[train] the folder has no run: file=\"", path, "\"");
  TrainPlan plan = TrainPlan::from_json(read_config(path), "file=\"" + path + "\"");
  if (!is_built_in(plan.settings.text("model")) && std::filesystem::exists(script_path(folder)))
    plan.model_file = script_path(folder);
  return plan;
}

ExampleDataset batches_of(const ExamplePart& examples, int64_t batch_size, int64_t shuffle) {
  // All workers share one stream of batches, so that examples and numbers are those of one worker.
  return examples.batches(batch_size, shuffle).with_options({.auto_shard_policy = data::AutoShardPolicy::Data});
}

}  // namespace lockstep::tools
