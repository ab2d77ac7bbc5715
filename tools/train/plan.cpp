#include "tools/train/plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "tools/command/nearest.h"

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

/// Mean and deviation of each feature, or of each channel of images, over all examples.
void standardize(TrainPlan& plan, const ExampleDataset& training) {
  torch::Tensor first;
  torch::Tensor sum;
  torch::Tensor squares;
  int64_t count = 0;
  const bool has_channels = plan.form.input_shape.size() == 3;
  constexpr int64_t kRows = 256;
  progress::Task task("computing mean and variance", {.unit = "examples", .total = plan.examples});
  for (const auto& [inputs, targets] : training.batch(kRows)) {
    const torch::Tensor values = inputs.to(torch::kDouble);
    LOCKSTEP_CHECK_DATA(values.isfinite().all().item<bool>(), "[train] inputs must be finite numbers: examples=", count,
                        " to ", count + values.size(0) - 1, "; correct them, or leave features out with --features");
    const torch::Tensor rows = has_channels ? values.transpose(0, 1).flatten(1).t() : values;
    if (!first.defined()) {
      // Differences to some value of the data keep their digits.
      first = rows.mean(0);
      sum = torch::zeros_like(first);
      squares = torch::zeros_like(first);
    }
    const torch::Tensor differences = rows - first;
    sum += differences.sum(0);
    squares += differences.square().sum(0);
    count += rows.size(0);
    task.add(values.size(0));
  }
  const torch::Tensor mean = sum / count;
  const torch::Tensor deviation = (squares / count - mean.square()).clamp_min(0).sqrt();
  const torch::Tensor scale = torch::where(deviation > 1e-12, 1 / deviation, torch::ones_like(deviation));
  const std::vector<int64_t> shape =
      has_channels ? std::vector<int64_t>{plan.form.input_shape[0], 1, 1} : plan.form.input_shape;
  plan.shift = (first + mean).to(torch::kFloat).reshape(shape);
  plan.scale = scale.to(torch::kFloat).reshape(shape);
}

void choose_scaling(TrainPlan& plan, const ExampleDataset& training) {
  if (plan.form.task == Task::Sequence) return;
  std::string mode = plan.settings.text("normalize");
  if (mode == "auto") {
    const bool is_script = is_script_file(plan.settings.text("model"));
    // Models of files scale their inputs themselves.
    mode = is_script ? "none" : plan.form.is_image ? "unit" : "standard";
    plan.settings.set("normalize", mode);
  }
  plan.shift = torch::zeros({1});
  plan.scale = torch::full({1}, mode == "unit" ? 1.0 / 255 : 1.0);
  if (mode == "standard") standardize(plan, training);
}

Json values_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const torch::Tensor flat = tensor.flatten();
  return {{"shape", tensor.sizes().vec()},
          {"values", std::vector<float>(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel())}};
}

torch::Tensor tensor_of(const Json& json) {
  if (json.is_null()) return {};
  return torch::tensor(json.at("values").get<std::vector<float>>())
      .reshape(json.at("shape").get<std::vector<int64_t>>());
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
  return std::make_shared<ScaledNetwork>(network, shift, scale);
}

Json TrainPlan::to_json() const {
  return {{"format", kPlanFormat},
          {"settings", settings.json()},
          {"data", form.to_json()},
          {"examples", examples},
          {"validation_examples", validation_examples},
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
  const OpenedData opened =
      open_data(plan.settings.list("data"), plan.settings, {.form = saved ? std::optional(saved->form) : std::nullopt});
  plan.form = opened.form;
  plan.examples = opened.count;
  TrainData examples{opened.part(nullptr, true), std::nullopt};
  if (const auto validation = plan.settings.find_text("validation")) {
    if (const auto part = as_part(*validation)) {
      const auto seed = static_cast<uint64_t>(plan.settings.integer("seed"));
      const auto held_back = choose_held_back(opened.count, *part, seed);
      plan.validation_examples = std::count(held_back->begin(), held_back->end(), true);
      plan.examples -= plan.validation_examples;
      examples = {opened.part(held_back, false), opened.part(held_back, true)};
    } else {
      const OpenedData other = open_data({*validation}, plan.settings, {.form = plan.form});
      plan.validation_examples = other.count;
      examples.validation = other.part(nullptr, true);
    }
  }
  choose_loss(plan);
  if (saved) {
    LOCKSTEP_CHECK_VALUE(plan.examples == saved->examples && plan.validation_examples == saved->validation_examples,
                         "[train] the data have changed since the run began: examples=", plan.examples,
                         ", examples of the run=", saved->examples, ", for validation=", plan.validation_examples,
                         ", of the run=", saved->validation_examples, "; begin another run");
    plan.shift = saved->shift;
    plan.scale = saved->scale;
    plan.model_file = saved->model_file;
  } else {
    choose_scaling(plan, examples.training);
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

ExampleDataset batches_of(const ExampleDataset& examples, int64_t batch_size, int64_t buffer) {
  // All workers read everything and use their part of each batch, so that examples and numbers are those of one worker.
  ExampleDataset shuffled = buffer > 0 ? examples.shuffle(buffer) : examples;
  return shuffled.batch(batch_size).with_options({.auto_shard_policy = data::AutoShardPolicy::Data});
}

}  // namespace lockstep::tools
