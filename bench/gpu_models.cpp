#include "bench/gpu_models.h"

#include <algorithm>

#include <torch/utils.h>

#include "bench/xla_network.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

constexpr int64_t kPictureSide = 224;
constexpr int64_t kPictureClasses = 10;
constexpr int64_t kGptLayers = 6;
constexpr int64_t kGptTokens = 256;

/// A network of `bench xla`.
class NetworkModel final : public GpuModel {
 public:
  explicit NetworkModel(const NetworkOptions& options)
      : options_(options), network_(register_module("network", make_network(options))) {}

  ModelBatch make_batch(int64_t examples) const override {
    const XlaBatch batch = make_examples(options_, examples);
    return {batch.inputs, batch.targets};
  }
  torch::Tensor losses(const ModelBatch& batch) override { return network_->losses({batch.inputs, batch.labels}); }

 private:
  NetworkOptions options_;
  std::shared_ptr<Network> network_;
};

/// ResNet-18 of `bench step`, on larger pictures.
class PictureModel final : public GpuModel {
 public:
  PictureModel() : network_(register_module("network", make_model("resnet18"))) {}

  ModelBatch make_batch(int64_t examples) const override {
    return {torch::randn({examples, 3, kPictureSide, kPictureSide}),
            torch::randint(kPictureClasses, {examples}, torch::kLong)};
  }
  torch::Tensor losses(const ModelBatch& batch) override { return network_->losses(batch); }

 private:
  std::shared_ptr<BenchModel> network_;
};

bool is_chosen(const std::vector<std::string>& chosen, const std::string& name) {
  return chosen.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end();
}

std::string compute_name(at::ScalarType compute) { return compute == at::kFloat ? "float32" : "bfloat16"; }

std::vector<GpuCase> sizes_of_models() {
  return {{.width = 512, .batch = 32},
          {.width = 512, .batch = 256},
          {.width = 2048, .batch = 256},
          {.model = "resnet18", .width = 0, .batch = 64},
          {.model = "gpt", .width = 512, .batch = 16}};
}

}  // namespace

std::vector<GpuCase> gpu_cases(const GpuCaseFilter& filter) {
  std::vector<GpuCase> cases;
  for (const GpuCase& size : sizes_of_models()) {
    for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
      for (const char* const optimizer : {"sgd", "adam"}) {
        if (!is_chosen(filter.models, size.model) || !is_chosen(filter.optimizers, optimizer) ||
            !is_chosen(filter.computes, compute_name(compute))) {
          continue;
        }
        cases.push_back(size);
        cases.back().optimizer = optimizer;
        cases.back().compute = compute;
      }
    }
  }
  return cases;
}

std::vector<GpuCase> large_gpu_cases(const GpuCaseFilter& filter) {
  std::vector<GpuCase> cases;
  for (const GpuCase& size : sizes_of_models()) {
    const bool is_largest = size.model != "mlp" || size.width == 2048;
    if (is_largest && is_chosen(filter.models, size.model)) cases.push_back(size);
  }
  return cases;
}

GpuLine describe(const std::string& name, const GpuCase& gpu_case) {
  GpuLine line{{"name", name}, {"model", gpu_case.model}};
  if (gpu_case.width > 0) line.emplace_back("width", gpu_case.width);
  line.emplace_back("batch", gpu_case.batch);
  line.emplace_back("optimizer", gpu_case.optimizer);
  line.emplace_back("compute", compute_name(gpu_case.compute));
  return line;
}

std::shared_ptr<GpuModel> make_gpu_model(const GpuCase& gpu_case) {
  if (gpu_case.model == "resnet18") return std::make_shared<PictureModel>();
  LOCKSTEP_CHECK_VALUE(gpu_case.model == "mlp" || gpu_case.model == "gpt",
                       "[bench gpu] the model must be mlp, resnet18 or gpt: model=", gpu_case.model);
  return std::make_shared<NetworkModel>(NetworkOptions{.model = gpu_case.model,
                                                       .batch = gpu_case.batch,
                                                       .width = gpu_case.width,
                                                       .layers = kGptLayers,
                                                       .tokens = kGptTokens});
}

void copy_state(torch::nn::Module& to, const torch::nn::Module& from) {
  const torch::NoGradGuard no_grad;
  const auto copy = [](const std::vector<torch::Tensor>& into, const std::vector<torch::Tensor>& values) {
    for (size_t i = 0; i < into.size(); ++i) torch::Tensor(into[i]).copy_(values[i]);
  };
  copy(to.parameters(), from.parameters());
  copy(to.buffers(), from.buffers());
}

ModelBatch part_of(const ModelBatch& batch, int64_t begin, int64_t count, c10::Device device) {
  return {batch.inputs.narrow(0, begin, count).to(device), batch.labels.narrow(0, begin, count).to(device)};
}

}  // namespace lockstep::bench
