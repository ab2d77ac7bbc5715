#include "tests/golden/drivers/keras.h"

#include <tuple>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"

namespace lockstep::golden::drivers::training {
namespace {

/// prediction = x w + b, w = [1, 1], b = 0.
struct LineImpl : torch::nn::Module {
  LineImpl() {
    weight = register_parameter("weight", torch::ones({2}));
    bias = register_parameter("bias", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::matmul(x, weight) + bias; }
  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(Line);

Json train_line(const Case& test_case, const Strategy& strategy) {
  auto scope = strategy.scope();
  const auto model = module<Line>();
  const auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(test_case.in.at("learning_rate")));
  Trainer trainer(strategy, model, sgd, lockstep::losses::mse(), {.metrics = {metrics::mae("mae")}});
  const Examples examples = make_examples(test_case.in.at("examples"));
  const auto batches =
      data::from_tensor_slices(std::tuple{examples.x, examples.y}).batch(test_case.in.at("batch").get<int64_t>());
  if (test_case.call == "keras_predict") return numbers(trainer.predict(batches));
  if (test_case.call == "keras_evaluate") {
    const Logs logs = trainer.evaluate(batches);
    return {{"loss", logs.at("loss")}, {"mae", logs.at("mae")}};
  }
  const History history = trainer.fit(batches, {.epochs = test_case.in.at("epochs").get<int64_t>(), .verbose = false});
  return {{"loss", history.values("loss")},
          {"mae", history.values("mae")},
          {"weight", numbers(model->weight)},
          {"bias", numbers(model->bias)}};
}

Json normalize(const Case& test_case, const Strategy& strategy) {
  auto scope = strategy.scope();
  const double momentum = 1 - test_case.in.at("momentum").get<double>();  // Keras's counts the old value
  const auto norm = module<torch::nn::BatchNorm1d>(torch::nn::BatchNormOptions(2).momentum(momentum));
  if (test_case.in.at("synchronized")) nn::convert_sync_batch_norm(norm);
  const Examples examples = make_examples(test_case.in.at("examples"));
  const auto batches =
      strategy.distribute_dataset(data::from_tensor_slices(examples.x).batch(test_case.in.at("batch").get<int64_t>()));
  for (const auto& batch : batches) strategy.run([&](const at::Tensor& x) { return norm->forward(x); }, batch);
  Json means = Json::array();
  Json variances = Json::array();
  for (int i = 0; i < norm.num_replicas(); ++i) {
    means.push_back(numbers(norm.replica(i).running_mean));
    variances.push_back(numbers(norm.replica(i).running_var));
  }
  return {{"moving_mean", means}, {"moving_variance", variances}};
}

}  // namespace

Examples make_examples(int64_t count) {
  const at::Tensor rows = at::arange(count, at::kFloat).unsqueeze(1);
  const at::Tensor x = at::remainder(rows * 2 + at::arange(2, at::kFloat), 7) / 4;
  return {x, x.select(1, 0) * 2 - x.select(1, 1) * 3 + 1};
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).reshape({-1}).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

Json run_keras(const Case& test_case, const Strategy& strategy) {
  return test_case.call == "keras_batch_norm" ? normalize(test_case, strategy) : train_line(test_case, strategy);
}

}  // namespace lockstep::golden::drivers::training
