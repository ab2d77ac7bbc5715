#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"

/// A small training by Trainer, and by hand on one device.
namespace lockstep::tests {

struct RegressionImpl : torch::nn::Module {
  RegressionImpl() {
    register_module("hidden", hidden);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out->forward(torch::tanh(hidden->forward(x))); }
  torch::nn::Linear hidden{3, 8};
  torch::nn::Linear out{8, 2};
};
TORCH_MODULE(Regression);

struct Rows {
  torch::Tensor x;
  torch::Tensor y;

  auto dataset() const { return data::from_tensor_slices(std::tuple{x, y}); }
};

inline Rows make_rows(int64_t count) {
  torch::manual_seed(5);
  const auto x = torch::randn({count, 3}, torch::kDouble);
  return {x, torch::stack({x.sum(1), x.prod(1)}, 1)};
}

inline Strategy mirrored_cpus(int replicas) {
  set_logical_devices("CPU", 4);
  std::vector<std::string> names;
  for (int i = 0; i < replicas; ++i) names.push_back("CPU:" + std::to_string(i));
  return MirroredStrategy(names);
}

inline Module<Regression> make_regression(const Strategy& strategy) {
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  return module<Regression>();
}

/// A model with the same values each time, and what trains it.
struct TrainedRegression {
  explicit TrainedRegression(TrainerOptions options = {}, int replicas = 2, Loss loss = losses::mse())
      : strategy(mirrored_cpus(replicas)),
        model(make_regression(strategy)),
        sgd(optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1).momentum(0.9))),
        trainer(strategy, model, sgd, std::move(loss), std::move(options)) {}

  std::vector<torch::Tensor> parameters() const { return model.replica(0).parameters(); }

  Strategy strategy;
  Module<Regression> model;
  Optimizer<torch::optim::SGD> sgd;
  Trainer trainer;
};

/// Does something after a step.
class AtStep final : public Callback {
 public:
  AtStep(int64_t step, std::function<void(Trainer&)> action) : step_(step), action_(std::move(action)) {}
  void on_step_end(Trainer& trainer, int64_t step) override {
    if (step == step_) action_(trainer);
  }

 private:
  int64_t step_;
  std::function<void(Trainer&)> action_;
};

inline std::shared_ptr<Callback> at_step(int64_t step, std::function<void(Trainer&)> action) {
  return std::make_shared<AtStep>(step, std::move(action));
}

inline bool all_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b, double tolerance) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!torch::allclose(a[i], b[i], tolerance, tolerance)) return false;
  }
  return true;
}

}  // namespace lockstep::tests
