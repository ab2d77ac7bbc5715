// What the suites of DistributedDataParallel and Horovod pin of training, under every strategy: the result is that of
// LibTorch on one device. README.md has the tables.

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

constexpr int kSteps = 3;
constexpr double kPeerTolerance = 1e-9;

torch::Tensor loss_of_rows(const torch::Tensor& scores, const torch::Tensor& labels) {
  return torch::nll_loss(scores, labels, {}, torch::Reduction::None);
}

void drop_gradients(const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

class PeerTrainingTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  PeerTrainingTest() {
    torch::manual_seed(5);
    x = torch::randn({13, 1, 6, 6}, torch::kDouble);
    y = torch::randint(5, {13}, torch::kLong);
    if (named.is_traced()) {
      x = x.narrow(0, 0, 12);
      y = y.narrow(0, 0, 12);
    }
  }

  static int own_id() { return get_replica_context().replica_id_in_sync_group(); }
  static torch::optim::SGDOptions momentum() { return torch::optim::SGDOptions(0.1).momentum(0.9); }

  /// Calls `step(images, labels)` on all replicas.
  template <class Step>
  void run(const Step& step) const {
    strategy.run([&](torch::Tensor a, torch::Tensor b) { step(a, b); }, split(named, x), split(named, y));
  }

  template <class Model>
  void expect_parameters(const Model& model, const std::vector<torch::Tensor>& wanted) const {
    for (int i = 0; i < model.num_replicas(); ++i) {
      const auto got = model.replica(i).parameters();
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t p = 0; p < got.size(); ++p) {
        EXPECT_TRUE(torch::allclose(got[p].cpu(), wanted[p], kPeerTolerance, kPeerTolerance))
            << "parameter " << p << " of replica " << i;
      }
    }
  }

  /// Trains a module of the class M by LibTorch on the whole batch, and under the strategy, and compares. `each(module,
  /// images, labels)` returns the loss of each row. `set_up` is called with every module once.
  template <class M, class Each>
  void expect_trained_as_on_one_device(
      const Each& each, const std::function<void(typename M::ContainedType&)>& set_up = [](auto&) {}) const {
    torch::manual_seed(3);
    M plain;
    set_up(*plain);
    torch::optim::SGD reference(plain->parameters(), momentum());
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<M>();
    for (int i = 0; i < model.num_replicas(); ++i) set_up(model.replica(i));
    auto sgd = optimizer<torch::optim::SGD>(model, momentum());
    for (int step = 0; step < kSteps; ++step) {
      drop_gradients(plain->parameters());
      each(*plain, x, y).mean().backward();
      reference.step();
      run([&](const torch::Tensor& a, const torch::Tensor& b) {
        sgd.minimize(average_loss(each(*model, a, b), x.size(0)));
      });
    }
    expect_parameters(model, plain->parameters());
  }

  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
  torch::Tensor x, y;
};

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
  if (named.is_traced()) GTEST_SKIP() << "complex tensors stay on the CPU in traced replicas";
  auto scope = strategy.scope();
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
  if (named.is_traced()) GTEST_SKIP() << "traced tensors have one memory format";
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

struct TwoPathsImpl : torch::nn::Module {
  TwoPathsImpl() {
    register_module("common", common);
    register_module("left", left);
    register_module("right", right);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x, bool goes_left) {
    const auto hidden = torch::relu(common->forward(x.flatten(1)));
    return torch::log_softmax((goes_left ? left : right)->forward(hidden), 1);
  }
  torch::nn::Linear common{36, 6};
  torch::nn::Linear left{6, 5};
  torch::nn::Linear right{6, 5};
};
TORCH_MODULE(TwoPaths);

TEST_P(PeerTrainingTest, PathsThatDifferBetweenReplicas) {
  if (named.is_traced()) GTEST_SKIP() << "traced replicas compute the same";
  torch::manual_seed(3);
  TwoPaths plain;
  torch::optim::Adam reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<TwoPaths>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  for (int step = 0; step < 2 * kSteps; ++step) {
    const auto goes_left = [&](int replica) { return (replica + step) % 3 == 0; };
    drop_gradients(plain->parameters());
    const auto images = x.tensor_split(named.replicas);
    const auto labels = y.tensor_split(named.replicas);
    for (int r = 0; r < named.replicas; ++r) {
      (loss_of_rows(plain->forward(images[r], goes_left(r)), labels[r]).sum() / x.size(0)).backward();
    }
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      adam.minimize(average_loss(loss_of_rows(model->forward(a, goes_left(own_id())), b), x.size(0)));
    });
    expect_parameters(model, plain->parameters());
  }
}

TEST_P(PeerTrainingTest, PathsThatChangeFromStepToStep) {
  torch::manual_seed(3);
  TwoPaths plain;
  torch::optim::Adam reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<TwoPaths>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  for (const bool goes_left : {true, true, false, true, false}) {
    drop_gradients(plain->parameters());
    torch::nll_loss(plain->forward(x, goes_left), y).backward();
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      adam.minimize(average_loss(loss_of_rows(model->forward(a, goes_left), b), x.size(0)));
    });
    expect_parameters(model, plain->parameters());
  }
}

TEST_P(PeerTrainingTest, MicroBatchesInOneRun) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), momentum());
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, momentum());
  for (int step = 0; step < kSteps; ++step) {
    drop_gradients(plain->parameters());
    for (int part = 0; part < 4; ++part) torch::nll_loss(plain->forward(x * (part + 1)), y).backward();
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      for (int part = 0; part < 4; ++part) {
        average_loss(loss_of_rows(model->forward(a * (part + 1)), b), x.size(0)).backward();
      }
      sgd.step();
      sgd.zero_grad();
    });
  }
  expect_parameters(model, plain->parameters());
}

TEST_P(PeerTrainingTest, TwoBackwardsThroughOneForward) {
  torch::manual_seed(3);
  TwoPaths plain;
  torch::optim::SGD reference(plain->parameters(), momentum());
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<TwoPaths>();
  auto sgd = optimizer<torch::optim::SGD>(model, momentum());
  const auto backward_twice = [](TwoPathsImpl& of, const torch::Tensor& a, const torch::Tensor& b, int64_t rows) {
    const auto hidden = torch::relu(of.common->forward(a.flatten(1)));
    const auto left = loss_of_rows(torch::log_softmax(of.left->forward(hidden), 1), b).sum() / rows;
    const auto right = loss_of_rows(torch::log_softmax(of.right->forward(hidden), 1), b).sum() / rows;
    left.backward({}, /*retain_graph=*/true);
    right.backward();
  };
  for (int step = 0; step < kSteps; ++step) {
    drop_gradients(plain->parameters());
    backward_twice(*plain, x, y, x.size(0));
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      backward_twice(*model, a, b, x.size(0));
      sgd.step();
      sgd.zero_grad();
    });
  }
  expect_parameters(model, plain->parameters());
}

TEST_P(PeerTrainingTest, GradientsTurnedOffAndOnInsideRun) {
  torch::manual_seed(3);
  TwoPaths plain;
  torch::optim::SGD reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<TwoPaths>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (const bool trains_common : {true, false, true, false, false, true}) {
    const auto freeze = [&](TwoPathsImpl& of) {
      for (auto& parameter : of.common->parameters()) parameter.set_requires_grad(trains_common);
      for (auto& parameter : of.left->parameters()) parameter.set_requires_grad(!trains_common);
    };
    drop_gradients(plain->parameters());
    freeze(*plain);
    torch::nll_loss(plain->forward(x, true), y).backward();
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      freeze(*model);
      sgd.minimize(average_loss(loss_of_rows(model->forward(a, true), b), x.size(0)));
    });
    expect_parameters(model, plain->parameters());
  }
}

TEST_P(PeerTrainingTest, InferenceOfOneReplicaBetweenSteps) {
  if (named.is_traced()) GTEST_SKIP() << "traced replicas compute the same";
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), momentum());
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, momentum());
  for (int step = 0; step < kSteps; ++step) {
    drop_gradients(plain->parameters());
    torch::nll_loss(plain->forward(x), y).backward();
    reference.step();
    const auto wanted = plain->forward(x).detach();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      sgd.minimize(average_loss(loss_of_rows(model->forward(a), b), x.size(0)));
    });
    model.eval();
    run([&](const torch::Tensor&, const torch::Tensor&) {
      const torch::NoGradGuard no_grad;
      for (int i = 0; i < own_id(); ++i) {
        EXPECT_TRUE(torch::allclose(model->forward(x.to(named.device)).cpu(), wanted, 1e-6, 1e-6));
      }
    });
    model.train();
  }
  expect_parameters(model, plain->parameters());
}

TEST_P(PeerTrainingTest, ModulesThatDifferBetweenWorkersAreAnError) {
  if (!named.has_workers()) GTEST_SKIP() << "one process";
  const char* engine = std::getenv("LOCKSTEP_ENGINE");
  if (engine != nullptr && std::string(engine) == "mpi") GTEST_SKIP() << "mpirun takes an MPI job that failed as ended";
  const auto outcome_of = [&](const std::function<void()>& make) -> std::string {
    try {
      auto scope = strategy.scope();
      make();
      strategy.run([] { get_replica_context().all_reduce("sum", torch::ones({})); });
    } catch (const std::exception& thrown) {
      return thrown.what();
    }
    return "no error";
  };
  const bool is_first = named.first == 0;
  const auto other_shape = outcome_of([&] { module<torch::nn::Linear>(is_first ? 3 : 4, 2); });
  EXPECT_THAT(other_shape,
              ::testing::AllOf(::testing::Ne("no error"), ::testing::Not(::testing::HasSubstr("timeout"))));
  strategy = named.make();
  const auto other_number =
      outcome_of([&] { module<torch::nn::Linear>(torch::nn::LinearOptions(3, 2).bias(is_first)); });
  EXPECT_THAT(other_number,
              ::testing::AllOf(::testing::Ne("no error"), ::testing::Not(::testing::HasSubstr("timeout"))));
  strategy = named.make();
}

TEST_P(PeerTrainingTest, ALossWithoutGradientsIsAnError) {
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  auto sgd = optimizer<torch::optim::SGD>(model, momentum());
  const auto before = model->first->weight.detach().cpu().clone();
  run([&](const torch::Tensor& a, const torch::Tensor& b) {
    EXPECT_THROW(sgd.minimize(average_loss(loss_of_rows(model->forward(a), b), x.size(0))), c10::Error);
  });
  EXPECT_TRUE(torch::equal(model->first->weight.cpu(), before));
}

INSTANTIATE_TEST_SUITE_P(Strategies, PeerTrainingTest, ::testing::ValuesIn(all_strategies(TpuSize{2, 1})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
