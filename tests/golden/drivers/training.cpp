#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/golden/drivers.h"
#include "tests/golden/drivers/keras.h"
#include "tests/golden/strategies.h"

namespace lockstep::golden::drivers::training {
namespace {

/// Takes one step: the loss of a replica in, variables updated.
using Minimize = std::function<void(const at::Tensor&)>;

template <class O, class Options>
Minimize minimize_with(const std::vector<Variable>& variables, const Options& options) {
  return [optimizer = optimizer<O>(variables, options)](const at::Tensor& loss) { optimizer.minimize(loss); };
}

/// The optimizers with Keras's constants; Adagrad's sums start at zero.
Minimize make_optimizer(const std::string& name, double lr, const std::vector<Variable>& variables) {
  using namespace torch::optim;
  if (name == "sgd") return minimize_with<SGD>(variables, SGDOptions(lr));
  if (name == "momentum") return minimize_with<SGD>(variables, SGDOptions(lr).momentum(0.9));
  if (name == "nesterov") return minimize_with<SGD>(variables, SGDOptions(lr).momentum(0.9).nesterov(true));
  if (name == "adam") return minimize_with<Adam>(variables, AdamOptions(lr).eps(1e-7));
  if (name == "adamw") return minimize_with<AdamW>(variables, AdamWOptions(lr).eps(1e-7).weight_decay(0.004));
  if (name == "rmsprop") return minimize_with<RMSprop>(variables, RMSpropOptions(lr).alpha(0.9).eps(1e-7));
  if (name == "adagrad") return minimize_with<Adagrad>(variables, AdagradOptions(lr).eps(1e-7));
  throw HarnessError("[training] unknown optimizer: " + name);
}

Json train(const Case& test_case, const Strategy& strategy) {
  auto scope = strategy.scope();
  const Variable weight(at::ones({2}), {.name = "weight"});
  const Variable bias(at::zeros({1}), {.name = "bias"});
  const Minimize minimize =
      make_optimizer(test_case.text("optimizer"), test_case.in.at("learning_rate"), {weight, bias});
  const bool by_global_batch = test_case.text("loss").ends_with("global batch");
  const int64_t batch = test_case.in.at("batch");
  const Examples examples = make_examples(test_case.in.at("examples"));
  const auto batches =
      strategy.distribute_dataset(data::from_tensor_slices(std::tuple{examples.x, examples.y}).batch(batch));
  const auto step = [&](const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor error = at::matmul(x, weight.value()) + bias.value() - y;
    const int64_t replicas = strategy.num_replicas_in_sync();
    const at::Tensor mean = average_loss(error * error, by_global_batch ? batch : replicas * x.size(0));
    minimize(mean);
    return mean.detach();
  };
  std::vector<double> losses;
  for (int epoch = 0; epoch < test_case.in.at("epochs"); ++epoch) {
    for (const auto& one : batches) losses.push_back(strategy.reduce("sum", strategy.run(step, one)).item<double>());
  }
  return {{"losses", losses}, {"weight", numbers(weight.value())}, {"bias", numbers(bias.value())}};
}

}  // namespace

Outcome run(const Case& test_case) {
  const bool is_keras = test_case.call.starts_with("keras_");
  if (test_case.call != "loop" && !is_keras) throw HarnessError("[training] unknown call: " + test_case.call);
  const LogicalCpus cpus(test_case);
  if (is_keras) return Outcome::of_value(run_keras(test_case, strategy_of(test_case)));
  return Outcome::of_value(train(test_case, strategy_of(test_case)));
}

}  // namespace lockstep::golden::drivers::training
