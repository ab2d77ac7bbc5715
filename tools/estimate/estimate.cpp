#include "lockstep/train/estimate.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/train/memory_of_device.h"
#include "tools/estimate/known_parameters.h"
#include "tools/print_result.h"
#include "tools/subcommands.h"
#include "tools/train/networks.h"
#include "tools/train/settings.h"

namespace lockstep::tools {
namespace {

/// What `lockstep estimate` was asked.
struct EstimateRequest {
  NetworkPlan network;
  std::string input_shape;
  bool has_tokens = false;
  int64_t batch_size = 32;
  std::string optimizer = "adam";
  std::string strategy;
  int replicas = 1;
  int workers = 1;
  bool one_machine = false;
  std::string shard = "none";
  std::string device;
  bool json = false;

  bool is_gpt() const { return network.model == "gpt"; }
};

std::unique_ptr<torch::optim::Optimizer> estimated_optimizer(const std::string& name,
                                                             std::vector<torch::Tensor> parameters) {
  namespace optim = torch::optim;
  if (name == "sgd") return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(0.05).momentum(0.9));
  if (name == "adam") return std::make_unique<optim::Adam>(std::move(parameters));
  if (name == "adamw") return std::make_unique<optim::AdamW>(std::move(parameters));
  if (name == "rmsprop") return std::make_unique<optim::RMSprop>(std::move(parameters));
  return std::make_unique<optim::Adagrad>(std::move(parameters));
}

Shard estimated_shard(const std::string& name) {
  if (name == "state") return Shard::State;
  return name == "gradients" ? Shard::Gradients : Shard::None;
}

void complete_network(EstimateRequest& request) {
  NetworkPlan& network = request.network;
  const bool is_script = is_script_file(network.model);
  const char* fallback = request.is_gpt() ? "64" : network.model == "mlp" ? "784" : "3x32x32";
  LOCKSTEP_CHECK_VALUE(
      !is_script || !request.input_shape.empty(),
      "[estimate] a TorchScript model needs --input-shape, the shape of an example: model=", network.model);
  network.input_shape = parse_sizes(request.input_shape.empty() ? fallback : request.input_shape, "--input-shape");
  const size_t dims = network.input_shape.size();
  const bool is_image_model = network.model == "cnn" || network.model == "resnet";
  LOCKSTEP_CHECK_VALUE(!is_image_model || dims == 3, "[estimate] ", network.model,
                       " learns images, CHANNELSxHEIGHTxWIDTH: --input-shape=", request.input_shape);
  LOCKSTEP_CHECK_VALUE(!request.is_gpt() || dims == 1,
                       "[estimate] gpt learns text of one length: --input-shape=", request.input_shape);
  LOCKSTEP_CHECK_VALUE(!request.is_gpt() || network.width % network.heads == 0,
                       "[estimate] --heads must divide --width: heads=", network.heads, ", width=", network.width);
  if (network.hidden.empty()) {
    network.hidden = network.model == "mlp"   ? std::vector<int64_t>{128, 64}
                     : network.model == "cnn" ? std::vector<int64_t>{32, 64}
                                              : std::vector<int64_t>{16, 32, 64};
  }
  request.has_tokens = request.has_tokens || request.is_gpt();
}

/// Classes where the output has them; numbers of any shape otherwise.
torch::Tensor estimated_loss(const torch::Tensor& output, const torch::Tensor& labels) {
  const bool has_classes =
      output.dim() >= 2 && output.size(-1) > 1 && output.numel() / output.size(-1) == labels.numel();
  if (!has_classes) return output.square().mean();
  return torch::nll_loss(torch::log_softmax(output.reshape({-1, output.size(-1)}), 1), labels);
}

EstimatedStep estimated_step(const EstimateRequest& request, c10::Device device) {
  const auto network = make_network(request.network);
  network->to(device);
  network->train();
  EstimatedStep step;
  step.set_module(*network);
  step.make_batch = [request, device](int64_t rows) -> std::vector<torch::Tensor> {
    std::vector<int64_t> shape = request.network.input_shape;
    shape.insert(shape.begin(), rows);
    const int64_t classes = request.network.outputs;
    const auto whole = torch::TensorOptions(torch::kLong).device(device);
    const auto input = request.has_tokens ? torch::randint(classes, shape, whole)
                                          : torch::randn(shape, torch::TensorOptions(torch::kFloat).device(device));
    const int64_t labels = request.has_tokens ? input.numel() : rows;
    return {input, torch::randint(classes, {labels}, whole)};
  };
  step.loss = [network](const std::vector<torch::Tensor>& batch) {
    return estimated_loss(network->forward(batch[0]), batch[1]);
  };
  step.make_optimizer = [name = request.optimizer](std::vector<torch::Tensor> parameters) {
    return estimated_optimizer(name, std::move(parameters));
  };
  return step;
}

/// The first GPU, where there is one and the CPU was not asked for.
c10::Device estimated_device(const std::string& asked) {
  const auto gpus = list_logical_devices("GPU");
  LOCKSTEP_CHECK_VALUE(asked != "gpu" || !gpus.empty(), "[estimate] this machine has no GPU: --device=gpu; use cpu");
  if (asked == "cpu" || gpus.empty()) return c10::DeviceType::CPU;
  return gpus.front().torch_device;
}

/// ValueError for a setting that was given and changes nothing.
void check_settings_apply(const CLI::App& command, const EstimateRequest& request, const TrainingPlan& plan) {
  struct Rule {
    const char* name;
    bool applies;
    const char* needs;
  };
  const bool is_script = is_script_file(request.network.model);
  const bool is_tpu = plan.strategy == EstimatedStrategy::TPU;
  const bool is_mirrored =
      plan.strategy == EstimatedStrategy::Mirrored || plan.strategy == EstimatedStrategy::MultiWorker;
  const bool has_own_memory = plan.device.is_cpu() ? !plan.one_machine && plan.workers > 1 : true;
  const std::vector<Rule> rules{
      {"--hidden", !is_script && !request.is_gpt(), "the model mlp, cnn or resnet"},
      {"--width", request.is_gpt(), "the model gpt"},
      {"--layers", request.is_gpt(), "the model gpt"},
      {"--heads", request.is_gpt(), "the model gpt"},
      {"--tokens", is_script, "TorchScript models: gpt always has tokens, other models never"},
      {"--device", !is_tpu || request.device == "cpu", "other strategies than tpu"},
      {"--one-machine", plan.workers > 1 && plan.device.is_cpu(), "several workers on CPUs"},
      {"--shard", request.shard == "none" || (is_mirrored && has_own_memory && (plan.replicas > 1 || plan.workers > 1)),
       "several replicas on GPUs, and several workers with machines of their own"},
  };
  for (const Rule& rule : rules) {
    LOCKSTEP_CHECK_VALUE(rule.applies || command.count(rule.name) == 0, "[estimate] ", rule.name, " is for ",
                         rule.needs, ": model=", request.network.model, ", strategy=", request.strategy,
                         ", workers=", plan.workers, ", device=", plan.device, "; leave it out");
  }
}

Json to_json(const MemoryEstimate& estimate) {
  const StepMemory& step = estimate.replica;
  const auto measured = [&](int64_t bytes) { return step.measured_rows == 0 ? Json(nullptr) : Json(bytes); };
  Json places = Json::array();
  for (const PlaceMemory& place : estimate.places) {
    places.push_back({{"place", place.name},
                      {"parameters", place.parameters},
                      {"buffers", place.buffers},
                      {"optimizer_state", place.optimizer_state},
                      {"step", place.step},
                      {"total", place.total()},
                      {"available", place.available == 0 ? Json(nullptr) : Json(place.available)},
                      {"free", place.free == 0 ? Json(nullptr) : Json(place.free)}});
  }
  return {{"num_parameters", step.num_parameters},
          {"rows", step.rows},
          {"measured_rows", step.measured_rows},
          {"replica",
           {{"parameters", step.parameters},
            {"buffers", step.buffers},
            {"gradients", step.gradients},
            {"optimizer_state", step.optimizer_state},
            {"input", measured(step.input)},
            {"activations", measured(step.activations)},
            {"passes", measured(step.passes)}}},
          {"places", std::move(places)},
          {"fits", estimate.fits()},
          {"verdict", estimate.verdict()}};
}

void print_estimate(const EstimateRequest& request, const MemoryEstimate& estimate, std::ostream& out) {
  const StepMemory& step = estimate.replica;
  const auto row = [&](const char* name, int64_t bytes) {
    out << "  " << std::left << std::setw(34) << name << std::right << std::setw(12) << bytes_text(bytes) << '\n';
  };
  out << request.network.model << ": " << step.num_parameters << " parameters\n"
      << "one replica, " << step.rows << " of " << request.batch_size << " rows";
  if (step.measured_rows == 0) out << " (not measured: what is known does not fit)";
  if (step.measured_rows > 0 && step.rows > step.measured_rows) out << " (measured with " << step.measured_rows << ")";
  out << ":\n";
  row("parameters", step.parameters);
  if (step.buffers > 0) row("buffers", step.buffers);
  row("gradients", step.gradients);
  row("optimizer state", step.optimizer_state);
  if (step.measured_rows > 0) {
    row("input", step.input);
    row("activations", step.activations);
    row("forward and backward, at most", step.passes);
  }
  for (const PlaceMemory& place : estimate.places) {
    out << place.name << ":\n";
    row("parameters", place.parameters);
    if (place.buffers > 0) row("buffers", place.buffers);
    row("optimizer state", place.optimizer_state);
    row(step.measured_rows > 0 ? "steps, at most" : "steps, at least", place.step);
    row("all", place.total());
  }
  out << estimate.verdict() << '\n';
}

/// The estimate of what is known of a model before it is made, where that alone does not fit.
std::optional<MemoryEstimate> too_large(const EstimateRequest& request, int64_t rows, const TrainingPlan& plan) {
  const auto parameters = known_parameters(request.network);
  if (!parameters) return std::nullopt;
  StepMemory known = known_memory(*parameters, request.optimizer);
  known.rows = rows;
  MemoryEstimate result = estimate_memory(known, plan);
  return result.fits() ? std::nullopt : std::optional(std::move(result));
}

/// Makes the model, and measures it.
MemoryEstimate measured_estimate(const EstimateRequest& request, int64_t rows, const TrainingPlan& plan) {
  // Programs for TPU cores are not measured: a step on the CPU stands for them.
  const bool is_tpu = plan.strategy == EstimatedStrategy::TPU;
  const c10::Device device = is_tpu ? c10::Device(c10::DeviceType::CPU) : plan.device;
  if (device.is_cpu()) detail::limit_own_memory();
  try {
    MemoryEstimate result = estimate_memory(estimated_step(request, device), rows, plan);
    const auto known = known_parameters(request.network);
    LOCKSTEP_ASSERT(!known || *known == static_cast<double>(result.replica.num_parameters), "parameters=", *known);
    return result;
  } catch (const std::exception&) {
    if (!detail::is_out_of_memory(std::current_exception())) throw;
    const detail::DeviceMemory memory = detail::memory_of_device(device);
    std::string has = bytes_text(memory.total);
    if (memory.free > 0) has += ", " + bytes_text(memory.free) + " of it free";
    LOCKSTEP_THROW(c10::OutOfMemoryError, "[estimate] it does not fit: a step of a few rows takes more memory than ",
                   device, " has now: memory=", has, "; ", error_text(std::current_exception()));
  }
}

/// Exits with 1 where it does not fit.
void estimate(const CLI::App& command, EstimateRequest request) {
  complete_network(request);
  if (request.strategy.empty()) {
    request.strategy = request.workers > 1 ? "multi_worker" : request.replicas > 1 ? "mirrored" : "one_device";
  }
  TrainingPlan plan{.strategy = estimated_strategy(request.strategy),
                    .replicas = request.replicas,
                    .workers = request.workers,
                    .one_machine = request.one_machine,
                    .shard = estimated_shard(request.shard),
                    .device = estimated_device(request.device)};
  const int64_t replicas = static_cast<int64_t>(request.replicas) * request.workers;
  const int64_t rows = (request.batch_size + replicas - 1) / replicas;
  check_settings_apply(command, request, plan);
  auto known = too_large(request, rows, plan);
  const MemoryEstimate result = known ? std::move(*known) : measured_estimate(request, rows, plan);
  if (request.json) {
    print_result(to_json(result), ResultStyle::Json);
  } else {
    print_estimate(request, result, std::cout);
  }
  if (!result.fits()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_estimate(CLI::App& app) {
  auto* command = app.add_subcommand("estimate", "Show the memory that a training takes, from one step of its model");
  auto request = std::make_shared<EstimateRequest>();
  NetworkPlan& network = request->network;
  network.outputs = 10;
  network.width = 64;
  network.layers = 2;
  network.heads = 4;
  command->add_option("--model", network.model, "mlp, cnn, resnet, gpt, or FILE.pt, a TorchScript model")->required();
  command->add_option("--batch-size", request->batch_size, "Examples of a batch, of all replicas together")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option(
      "--input-shape", request->input_shape,
      "Shape of an example: 784, 3x32x32; for gpt the number of tokens [mlp 784, gpt 64, else 3x32x32]");
  command->add_option("--classes", network.outputs, "Number of outputs: classes, or different tokens of gpt")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_flag("--tokens", request->has_tokens,
                    "The input of a TorchScript model are whole numbers below --classes");
  command->add_option("--hidden", network.hidden, "Widths of layers [mlp 128,64; cnn 32,64; resnet 16,32,64]")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->add_option("--width", network.width, "Features of a token, of gpt")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--layers", network.layers, "Layers of gpt")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--heads", network.heads, "Attention heads of gpt")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--optimizer", request->optimizer, "sgd, adam, adamw, rmsprop or adagrad")
      ->capture_default_str()
      ->check(CLI::IsMember({"sgd", "adam", "adamw", "rmsprop", "adagrad"}));
  command
      ->add_option("--strategy", request->strategy,
                   "one_device, mirrored, multi_worker, central or tpu [by the numbers of replicas and workers]")
      ->check(CLI::IsMember({"one_device", "mirrored", "multi_worker", "central", "tpu"}));
  command->add_option("--replicas", request->replicas, "Replicas of each worker")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--workers", request->workers, "Workers")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  command->add_flag("--one-machine", request->one_machine, "All workers run on one machine");
  command
      ->add_option("--shard", request->shard, "What the optimizer divides over the replicas: none, state or gradients")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "state", "gradients"}));
  command->add_option("--device", request->device, "cpu or gpu [gpu where there is one]")
      ->check(CLI::IsMember({"cpu", "gpu"}));
  command->add_flag("--json", request->json, "Print one JSON object");
  command->footer(
      "\nSizes of parameters, gradients and optimizer state are exact; activations are measured with few rows and "
      "extrapolated.\nExit status 1 if the memory of the machine, or of its control group or GPU, is not enough.\n"
      "\nExamples:\n"
      "  lockstep estimate --model resnet --batch-size 256 --input-shape 3x224x224 --replicas 4\n"
      "  lockstep estimate --model gpt --width 768 --layers 12 --heads 12 --input-shape 1024 --classes 50257\n"
      "  lockstep estimate --model model.pt --input-shape 3x224x224 --strategy central --replicas 2");
  command->callback([request, command] { estimate(*command, *request); });
}

}  // namespace lockstep::tools
