// What the suites of DistributedDataParallel and Horovod pin of steps that differ from each other: other parameters,
// several passes, computations of one replica, errors.

#include <cstdlib>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/peers/peer_training.h"

namespace lockstep::conformance {
namespace {

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

}  // namespace
}  // namespace lockstep::conformance
