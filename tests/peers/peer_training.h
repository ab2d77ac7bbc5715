#pragma once

#include <functional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

/// Training under every strategy, to be compared with LibTorch on one device.
namespace lockstep::conformance {

constexpr int kSteps = 3;
constexpr double kPeerTolerance = 1e-9;

inline torch::Tensor loss_of_rows(const torch::Tensor& scores, const torch::Tensor& labels) {
  return torch::nll_loss(scores, labels, {}, torch::Reduction::None);
}

inline void drop_gradients(const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

class PeerTrainingTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  PeerTrainingTest() {
    torch::manual_seed(5);
    x = torch::randn({13, 1, 6, 6}, torch::kDouble);
    y = torch::randint(5, {13}, torch::kLong);
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

}  // namespace lockstep::conformance
