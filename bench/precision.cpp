#include "bench/precision.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include <torch/cuda.h>
#include <torch/optim/adam.h>

#include "bench/libtorch_autocast.h"
#include "bench/median.h"
#include "bench/models.h"
#include "bench/turns.h"
#include "bench/wait_for_device.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr double kRate = 1e-3;
/// Batches that a training repeats.
constexpr size_t kBatches = 4;

ModelBatch moved(const ModelBatch& batch, c10::Device device) {
  return {batch.inputs.to(device), batch.labels.to(device)};
}

std::vector<ModelBatch> make_batches(const BenchModel& model, int64_t examples, c10::Device device) {
  torch::manual_seed(2);
  std::vector<ModelBatch> batches;
  for (size_t i = 0; i < kBatches; ++i) batches.push_back(moved(model.make_batch(examples), device));
  return batches;
}

/// A program that uses LibTorch alone.
class AutocastStep {
 public:
  AutocastStep(const PrecisionOptions& options, c10::Device device)
      : device_(device), model_((torch::manual_seed(1), make_model(options.model))) {
    model_->to(device);
    optimizer_.emplace(model_->parameters(), torch::optim::AdamOptions(kRate));
    batches_ = make_batches(*model_, options.batch, device);
  }

  void operator()() {
    optimizer_->zero_grad();
    torch::Tensor loss;
    {
      const LibTorchAutocast autocast(device_.type());
      loss = model_->losses(batches_[step_++ % kBatches]).mean();
    }
    loss.backward();
    optimizer_->step();
  }

 private:
  c10::Device device_;
  std::shared_ptr<BenchModel> model_;
  std::optional<torch::optim::Adam> optimizer_;
  std::vector<ModelBatch> batches_;
  size_t step_ = 0;
};

/// A program that uses a strategy and a policy.
class PolicyStep {
 public:
  PolicyStep(const PrecisionOptions& options, c10::Device device, const Policy& policy)
      : strategy_(OneDeviceStrategy(options.device)), policy_(policy) {
    const auto scope = strategy_.scope();
    torch::manual_seed(1);
    model_.emplace(module_from([&] { return make_model(options.model); }));
    optimizer_.emplace(lockstep::optimizer<torch::optim::Adam>(*model_, torch::optim::AdamOptions(kRate)));
    batches_ = make_batches(model_->replica(0), options.batch, device);
  }

  torch::Tensor operator()() {
    torch::Tensor loss;
    strategy_.run(
        [&](const ModelBatch& batch) {
          const PolicyScope scope(policy_);
          const auto mean = (*model_)->losses(batch).mean();
          optimizer_->minimize(mean);
          loss = mean.detach();
        },
        batches_[step_++ % kBatches]);
    return loss;
  }

 private:
  Strategy strategy_;
  Policy policy_;
  std::optional<Module<BenchModel>> model_;
  std::optional<Optimizer<torch::optim::Adam>> optimizer_;
  std::vector<ModelBatch> batches_;
  size_t step_ = 0;
};

/// The mean losses of consecutive steps, one for each pass over the batches.
std::vector<double> smoothed_losses(const PrecisionOptions& options, c10::Device device, const Policy& policy) {
  PolicyStep step(options, device, policy);
  std::vector<double> smoothed;
  for (int i = 0; i < options.steps / static_cast<int>(kBatches); ++i) {
    double sum = 0;
    for (size_t k = 0; k < kBatches; ++k) sum += step().item<double>();
    smoothed.push_back(sum / kBatches);
  }
  return smoothed;
}

double mean_of_last(const std::vector<double>& losses) {
  const size_t count = std::max<size_t>(1, losses.size() / 10);
  double sum = 0;
  for (size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

void compare_losses(const PrecisionOptions& options, c10::Device device, PrecisionResult& result) {
  const std::vector<double> of_float = smoothed_losses(options, device, {});
  const std::vector<double> narrow = smoothed_losses(options, device, {.compute = torch::kBFloat16});
  for (size_t i = 0; i < of_float.size(); ++i) {
    result.largest_difference = std::max(result.largest_difference, std::abs(narrow[i] - of_float[i]) / of_float[0]);
  }
  result.last_loss_float = mean_of_last(of_float);
  result.last_loss_bfloat16 = mean_of_last(narrow);
}

}  // namespace

PrecisionResult bench_precision(const PrecisionOptions& given) {
  PrecisionOptions options = given;
  if (options.device.empty()) options.device = list_logical_devices("GPU").empty() ? "CPU:0" : "GPU:0";
  if (options.batch == 0) options.batch = make_model(options.model)->default_examples();
  const c10::Device device = options.device.starts_with("GPU") ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  AutocastStep autocast(options, device);
  PolicyStep policy(options, device, {.compute = torch::kBFloat16});
  PolicyStep of_float(options, device, {});
  const auto ended = [&](auto& step) {
    return [&] {
      for (int i = 0; i < 4; ++i) step();
      wait_for_device(device);
    };
  };
  std::vector<double> seconds_autocast;
  std::vector<double> seconds_policy;
  std::vector<double> seconds_float;
  Turns turns;
  turns.add(ended(autocast), seconds_autocast);
  turns.add(ended(policy), seconds_policy);
  turns.add(ended(of_float), seconds_float);
  turns.take(options.seconds);
  PrecisionResult result{options};
  result.seconds_autocast = median(seconds_autocast) / 4;
  result.seconds_policy = median(seconds_policy) / 4;
  result.seconds_float = median(seconds_float) / 4;
  result.ratio = result.seconds_policy / result.seconds_autocast;
  result.speedup = result.seconds_float / result.seconds_policy;
  compare_losses(options, device, result);
  return result;
}

}  // namespace lockstep::bench
