// What the suites of DistributedDataParallel and Horovod pin of training, under every strategy: the result is that of
// LibTorch on one device. README.md has the tables.

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/peers/peer_training.h"

namespace lockstep::conformance {
namespace {

/// Parameters of many shapes, some of them without an element.
struct ShapesImpl : torch::nn::Module {
  ShapesImpl() {
    register_module("mlp", mlp);
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {1}, {0, 3}, {7}, {3, 1, 2}}) {
      const auto name = "shape" + std::to_string(shapes.size());
      shapes.push_back(register_parameter(name, torch::ones(shape, torch::kDouble)));
    }
  }
  Mlp mlp;
  std::vector<torch::Tensor> shapes;
};
TORCH_MODULE(Shapes);

TEST_P(PeerTrainingTest, ParametersOfAnyShape) {
  expect_trained_as_on_one_device<Shapes>([](ShapesImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    auto each = loss_of_rows(model.mlp->forward(a), b);
    for (const auto& parameter : model.shapes) each = each + parameter.square().sum();
    return each;
  });
}

struct OneWeightImpl : torch::nn::Module {
  explicit OneWeightImpl(at::ScalarType dtype) {
    weight = register_parameter("weight", torch::ones({5}, torch::kFloat).to(dtype));
  }
  torch::Tensor weight;
};
TORCH_MODULE(OneWeight);

TEST_P(PeerTrainingTest, ParametersOfEveryFloatingDtype) {
  auto scope = strategy.scope();
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    auto model = module<OneWeight>(dtype);
    auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
    for (int step = 0; step < 2; ++step) {
      strategy.run([&] { sgd.minimize(model->weight.to(at::kFloat).sum() * (own_id() + 1)); });
    }
    const double wanted = 1 - named.replicas * (named.replicas + 1) / 2.0;
    for (int i = 0; i < model.num_replicas(); ++i) {
      EXPECT_TRUE(torch::equal(model.replica(i).weight.cpu(), torch::full({5}, wanted).to(dtype))) << dtype;
    }
  }
}

TEST_P(PeerTrainingTest, ComplexParameters) {
  auto scope = strategy.scope();
  if (named.is_traced()) {
    EXPECT_THROW(module<OneWeight>(at::kComplexDouble), c10::Error);
    return;
  }
  auto model = module<OneWeight>(at::kComplexDouble);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  const c10::complex<double> factor(1, 2);
  for (int step = 0; step < 2; ++step) {
    strategy.run([&] { sgd.minimize(torch::real(model->weight * factor).sum() * (own_id() + 1)); });
  }
  const double sum = named.replicas * (named.replicas + 1) / 2.0;
  const auto wanted =
      torch::complex(torch::full({5}, 1 - sum, torch::kDouble), torch::full({5}, 2 * sum, torch::kDouble));
  for (int i = 0; i < model.num_replicas(); ++i) {
    EXPECT_TRUE(torch::allclose(model.replica(i).weight.cpu(), wanted)) << model.replica(i).weight;
  }
}

TEST_P(PeerTrainingTest, SeveralForwardsBeforeOneBackward) {
  expect_trained_as_on_one_device<Mlp>([](MlpImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    return loss_of_rows(model.forward(a), b) + loss_of_rows(model.forward(a.flip({2})), b);
  });
}

TEST_P(PeerTrainingTest, GradientsOfGradients) {
  expect_trained_as_on_one_device<Mlp>([](MlpImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    const auto input = a.detach().clone().requires_grad_(true);
    const auto each = loss_of_rows(model.forward(input), b);
    const auto slope = torch::autograd::grad({each.sum()}, {input}, {}, {}, /*create_graph=*/true)[0];
    return each + slope.flatten(1).square().sum(1);
  });
}

TEST_P(PeerTrainingTest, HooksOfParametersChangeTheirGradients) {
  expect_trained_as_on_one_device<Mlp>(
      [](MlpImpl& model, const torch::Tensor& a, const torch::Tensor& b) { return loss_of_rows(model.forward(a), b); },
      [](MlpImpl& model) { model.first->weight.register_hook([](torch::Tensor gradient) { return gradient * 2; }); });
}

/// x³ with a gradient of its own, which autograd would not give: 2·x².
struct RoundedCube : torch::autograd::Function<RoundedCube> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x) {
    context->save_for_backward({x});
    return x.pow(3);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2 * context->get_saved_variables()[0].square()};
  }
};

TEST_P(PeerTrainingTest, FunctionsWithTheirOwnBackward) {
  expect_trained_as_on_one_device<Mlp>([](MlpImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    return loss_of_rows(model.forward(RoundedCube::apply(a)), b) +
           RoundedCube::apply(model.second->bias).sum() * model.first->bias.sum();
  });
}

TEST_P(PeerTrainingTest, InputsInAnotherMemoryFormat) {
  expect_trained_as_on_one_device<Cnn>([](CnnImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    return loss_of_rows(model.forward(a.contiguous(at::MemoryFormat::ChannelsLast)), b);
  });
}

/// Makes its first states in forward.
struct ReaderImpl : torch::nn::Module {
  ReaderImpl() {
    register_module("lstm", lstm);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto start = torch::zeros({1, x.size(0), 4}, x.options());
    const auto last = std::get<0>(lstm->forward(x.reshape({x.size(0), 6, 6}), std::tuple{start, start})).select(1, 5);
    return torch::log_softmax(out->forward(last), 1);
  }
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(6, 4).batch_first(true)};
  torch::nn::Linear out{4, 5};
};
TORCH_MODULE(Reader);

TEST_P(PeerTrainingTest, TensorsMadeInForward) {
  expect_trained_as_on_one_device<Reader>([](ReaderImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    return loss_of_rows(model.forward(a), b);
  });
}

/// Normalises by the mean and the variance of the rows of all replicas: what SyncBatchNorm does.
torch::Tensor normalized_over_replicas(const torch::Tensor& rows) {
  std::vector<torch::Tensor> sums{rows.sum(0), rows.square().sum(0), torch::full({}, rows.size(0), rows.options())};
  if (const ReplicaContext context = get_replica_context()) sums = context.all_reduce("sum", sums);
  const auto mean = sums[0] / sums[2];
  return (rows - mean) / (sums[1] / sums[2] - mean.square() + 1e-5).sqrt();
}

TEST_P(PeerTrainingTest, BatchNormalizationOverAllReplicas) {
  expect_trained_as_on_one_device<Mlp>([](MlpImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    const auto hidden = normalized_over_replicas(model.first->forward(a.flatten(1)));
    return loss_of_rows(torch::log_softmax(model.second->forward(torch::relu(hidden)), 1), b);
  });
}

/// The same with a gradient of its own, which needs the replica in the backward pass.
struct NormalizedOverReplicas : torch::autograd::Function<NormalizedOverReplicas> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& rows) {
    auto sums = summed({rows.sum(0), rows.square().sum(0), torch::full({}, rows.size(0), rows.options())});
    const auto mean = sums[0] / sums[2];
    const auto factor = (sums[1] / sums[2] - mean.square() + 1e-5).rsqrt();
    const auto result = (rows - mean) * factor;
    context->save_for_backward({result, factor, sums[2]});
    return result;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto sums = summed({gradients[0].sum(0), (gradients[0] * saved[0]).sum(0)});
    return {(gradients[0] - sums[0] / saved[2] - saved[0] * (sums[1] / saved[2])) * saved[1]};
  }
  static std::vector<torch::Tensor> summed(std::vector<torch::Tensor> parts) {
    const ReplicaContext replica = get_replica_context();
    return replica ? replica.all_reduce("sum", parts) : parts;
  }
};

TEST_P(PeerTrainingTest, BatchNormalizationAsAFunction) {
  expect_trained_as_on_one_device<Mlp>([](MlpImpl& model, const torch::Tensor& a, const torch::Tensor& b) {
    const auto hidden = NormalizedOverReplicas::apply(model.first->forward(a.flatten(1)));
    return loss_of_rows(torch::log_softmax(model.second->forward(torch::relu(hidden)), 1), b);
  });
}

/// A frozen integer parameter beside those that train.
struct IndexedImpl : torch::nn::Module {
  IndexedImpl() {
    index = register_parameter("index", torch::tensor({1, 3}, torch::kInt), /*requires_grad=*/false);
    weight = register_parameter("weight", torch::arange(4.0, torch::kDouble));
  }
  torch::Tensor index, weight;
};
TORCH_MODULE(Indexed);

TEST_P(PeerTrainingTest, IntegerParametersStayAsTheyAre) {
  expect_trained_as_on_one_device<Indexed>([](IndexedImpl& model, const torch::Tensor& a, const torch::Tensor&) {
    return torch::index_select(model.weight, 0, model.index.to(torch::kLong)).square().sum() * a.flatten(1).sum(1);
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, PeerTrainingTest, ::testing::ValuesIn(all_strategies({{1, 1}, {2, 1}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
