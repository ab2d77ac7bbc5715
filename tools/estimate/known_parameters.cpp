#include "tools/estimate/known_parameters.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::tools {
namespace {

double linear_parameters(double in, double out) { return in * out + out; }

double mlp_parameters(const NetworkPlan& plan) {
  double in = 1;
  for (const int64_t size : plan.input_shape) in *= static_cast<double>(size);
  double sum = 0;
  for (const int64_t out : plan.hidden) {
    sum += linear_parameters(in, static_cast<double>(out));
    in = static_cast<double>(out);
  }
  return sum + linear_parameters(in, static_cast<double>(plan.outputs));
}

double cnn_parameters(const NetworkPlan& plan) {
  auto in = static_cast<double>(plan.input_shape[0]);
  int64_t height = plan.input_shape[1];
  int64_t width = plan.input_shape[2];
  double sum = 0;
  for (const int64_t size : plan.hidden) {
    const auto out = static_cast<double>(size);
    sum += linear_parameters(9 * in, out);
    if (height >= 4 && width >= 4) {
      height /= 2;
      width /= 2;
    }
    in = out;
  }
  constexpr double kFeatures = 128;
  return sum + linear_parameters(in * static_cast<double>(height) * static_cast<double>(width), kFeatures) +
         linear_parameters(kFeatures, static_cast<double>(plan.outputs));
}

double resnet_parameters(const NetworkPlan& plan) {
  auto in = static_cast<double>(plan.hidden[0]);
  double sum = 9 * static_cast<double>(plan.input_shape[0]) * in + 2 * in;
  for (size_t group = 0; group < plan.hidden.size(); ++group) {
    const auto out = static_cast<double>(plan.hidden[group]);
    for (int block = 0; block < 2; ++block) {
      sum += 9 * in * out + 2 * out + 9 * out * out + 2 * out;
      const bool has_shortcut = in != out || (group > 0 && block == 0);
      if (has_shortcut) sum += in * out + 2 * out;
      in = out;
    }
  }
  return sum + linear_parameters(in, static_cast<double>(plan.outputs));
}

double gpt_parameters(const NetworkPlan& plan) {
  const auto width = static_cast<double>(plan.width);
  const auto outputs = static_cast<double>(plan.outputs);
  const double layer = linear_parameters(width, 3 * width) + linear_parameters(width, width) +
                       linear_parameters(width, 4 * width) + linear_parameters(4 * width, width) + 4 * width;
  return outputs * width + static_cast<double>(plan.input_shape[0]) * width + static_cast<double>(plan.layers) * layer +
         2 * width + linear_parameters(width, outputs);
}

int64_t whole_bytes(double number) {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  return number < static_cast<double>(kMost) ? static_cast<int64_t>(number) : kMost;
}

}  // namespace

std::optional<double> known_parameters(const NetworkPlan& plan) {
  if (plan.model == "mlp") return mlp_parameters(plan);
  if (plan.model == "cnn") return cnn_parameters(plan);
  if (plan.model == "resnet") return resnet_parameters(plan);
  if (plan.model == "gpt") return gpt_parameters(plan);
  return std::nullopt;
}

StepMemory known_memory(double parameters, const std::string& optimizer) {
  const double moments = optimizer == "adam" || optimizer == "adamw" ? 2 : 1;
  StepMemory step;
  step.num_parameters = whole_bytes(parameters);
  step.parameters = whole_bytes(4 * parameters);
  step.gradients = step.parameters;
  step.passes = step.gradients;
  step.update = step.gradients;
  step.optimizer_state = whole_bytes(4 * moments * parameters);
  return step;
}

}  // namespace lockstep::tools
