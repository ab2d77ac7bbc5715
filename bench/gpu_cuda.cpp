#include "bench/gpu_cuda.h"

#include <vector>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "bench/libtorch_autocast.h"

namespace lockstep::bench {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kWarmUpSteps = 5;
const c10::Device kFirstCard(c10::kCUDA, 0);

class GraphOfStep final : public StepByHand {
 public:
  GraphOfStep(const GpuCase& gpu_case, const ModelBatch& batch, const GpuModel& first, double learning_rate)
      : gpu_case_(gpu_case),
        learning_rate_(learning_rate),
        model_(make_gpu_model(gpu_case)),
        batch_(part_of(batch, 0, gpu_case.batch, kFirstCard)) {
    model_->to(kFirstCard);
    copy_state(*model_, first);
    parameters_ = model_->parameters();
    if (gpu_case.optimizer == "adam") make_adam_state();
    torch::cuda::synchronize();
    const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
    for (int i = 0; i < kWarmUpSteps; ++i) step();
    torch::cuda::synchronize();
    drop_gradients();
    // Backward runs on a thread of LibTorch's, whose calls belong to the capture only in this mode.
    graph_.capture_begin(at::cuda::MempoolId_t{0, 0}, cudaStreamCaptureModeRelaxed);
    step();
    graph_.capture_end();
    torch::cuda::synchronize();
  }

  void replay() override { graph_.replay(); }
  double loss() const override { return loss_.item<double>(); }
  int steps_before() const override { return kWarmUpSteps; }

 private:
  void make_adam_state() {
    for (const torch::Tensor& parameter : parameters_) {
      averages_.push_back(torch::zeros_like(parameter));
      squares_.push_back(torch::zeros_like(parameter));
      counts_.push_back(torch::zeros({}, torch::dtype(torch::kFloat).device(kFirstCard)));
    }
  }

  void drop_gradients() {
    for (torch::Tensor& parameter : parameters_) parameter.mutable_grad() = torch::Tensor();
  }

  void step() {
    drop_gradients();
    torch::Tensor loss;
    {
      std::optional<LibTorchAutocast> autocast;
      if (gpu_case_.compute != at::kFloat) autocast.emplace(kFirstCard.type());
      loss = model_->losses(batch_).mean();
    }
    loss.backward();
    update();
    loss_ = loss.detach();
  }

  void update() {
    const torch::NoGradGuard no_grad;
    Tensors gradients;
    for (const torch::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
    if (gpu_case_.optimizer == "sgd") return at::_foreach_add_(parameters_, gradients, -learning_rate_);
    at::_foreach_add_(counts_, 1.0);
    at::_fused_adam_(parameters_, gradients, averages_, squares_, {}, counts_, learning_rate_, 0.9, 0.999, 0.0, 1e-8,
                     false, false);
  }

  GpuCase gpu_case_;
  double learning_rate_;
  std::shared_ptr<GpuModel> model_;
  ModelBatch batch_;
  Tensors parameters_;
  Tensors averages_;
  Tensors squares_;
  /// Steps, on the card: a count of the host would be the same at each replay.
  Tensors counts_;
  torch::Tensor loss_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<StepByHand> capture_by_hand(const GpuCase& gpu_case, const ModelBatch& batch, const GpuModel& first,
                                            double learning_rate) {
  return std::make_unique<GraphOfStep>(gpu_case, batch, first, learning_rate);
}

std::optional<CardBytes> card_bytes() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(kFirstCard.index());
  constexpr size_t kAll = 0;  // of the kinds of pools
  return CardBytes{stats.allocated_bytes[kAll].current, stats.reserved_bytes[kAll].current};
}

std::string card_name() { return at::cuda::getDeviceProperties(kFirstCard.index())->name; }

std::string why_not_captured() { return {}; }

}  // namespace lockstep::bench
