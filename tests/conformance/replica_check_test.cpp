// Replicas are compared: whatever makes them differ is an error that names it, under every strategy.

#include <mutex>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/log.h"
#include "lockstep/device/random.h"
#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

/// Returns the message of the error that `fn` throws; empty where it throws none.
template <class F>
std::string error_of(F&& fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class ReplicaCheckTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  ReplicaCheckTest() : named(GetParam()), strategy(named.make()) {
    torch::manual_seed(5);
    x = torch::randn({12, 1, 6, 6}, torch::kDouble);
    y = torch::randint(5, {12}, torch::kLong);
    log::set_sink([this](log::Level, std::string_view line) {
      const std::lock_guard lock(mutex);
      logged += std::string(line) + "\n";
    });
  }
  ~ReplicaCheckTest() override { log::set_sink({}); }

  /// Whether there are several copies of a parameter.
  bool has_copies() const { return named.replicas > 1 && !named.stores_on_cpu && !named.sees_one_copy; }

  /// A number for each replica: 0 on the first one, more on the others.
  PerReplica<torch::Tensor> different_numbers() const {
    std::vector<torch::Tensor> numbers;
    for (int r = 0; r < named.replicas; ++r) numbers.push_back(torch::full({}, r * 1e-3, torch::kDouble));
    return local_values(named, numbers);
  }

  template <class Model>
  torch::Tensor loss(const Model& model, const torch::Tensor& images, const torch::Tensor& labels) const {
    return average_loss(torch::nll_loss(model->forward(images), labels, {}, torch::Reduction::None), x.size(0));
  }

  std::string warnings() const {
    const std::lock_guard lock(mutex);
    return logged;
  }

  NamedStrategy named;
  Strategy strategy;
  torch::Tensor x, y;
  mutable std::mutex mutex;
  std::string logged;
};

// An engine that gives one replica other bits than the others: nothing but the values shows it.
TEST_P(ReplicaCheckTest, FindsOtherBitsThanTheUpdateGave) {
  if (!has_copies()) return;
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  const auto step = [&](torch::Tensor a, torch::Tensor b, torch::Tensor noise) {
    adam.minimize(loss(model, a, b));
    model->second->bias.data().add_(noise);
  };
  const auto none = local_values(named, std::vector<torch::Tensor>(named.replicas, torch::zeros({}, torch::kDouble)));
  const auto a = split(named, x);
  const auto b = split(named, y);
  strategy.run(step, a, b, none);
  strategy.run(step, a, b, none);
  strategy.run(step, a, b, none);
  const std::string error = error_of([&] { strategy.run(step, a, b, different_numbers()); });
  EXPECT_TRUE(contains(error, "parameter second.bias")) << error;
  EXPECT_FALSE(contains(error, "second.weight")) << error;
  EXPECT_TRUE(contains(error, "after step 4, equal after step ")) << error;
}

TEST_P(ReplicaCheckTest, FindsAnOptimizerThatWasLeftUnconverted) {
  if (!has_copies()) return;
  auto scope = strategy.scope();
  // Another worker may have ended the job before this one has made its module.
  const std::string error = error_of([&] {
    auto model = module<Mlp>();
    std::vector<std::unique_ptr<torch::optim::SGD>> each;
    for (int i = 0; i < named.local; ++i) {
      each.push_back(std::make_unique<torch::optim::SGD>(model.replica(i).parameters(), 0.1));
    }
    strategy.run(
        [&](torch::Tensor a, torch::Tensor b) {
          loss(model, a, b).backward();
          each[get_replica_context().replica_id_in_sync_group() - named.first]->step();
        },
        split(named, x), split(named, y));
  });
  EXPECT_TRUE(contains(error, "parameter first.weight")) << error;
  EXPECT_TRUE(contains(error, "torch::optim")) << error;
}

TEST_P(ReplicaCheckTest, FindsInitializationInsideRun) {
  if (!has_copies()) return;
  auto scope = strategy.scope();
  const std::string error = error_of([&] {
    auto model = module<Mlp>();
    strategy.run([&] { torch::nn::init::normal_(model->first->weight, 0, 0.1); });
  });
  EXPECT_TRUE(contains(error, "parameter first.weight")) << error;
  EXPECT_FALSE(contains(error, "second.weight")) << error;
  EXPECT_TRUE(contains(error, "torch::nn::init")) << error;
}

TEST_P(ReplicaCheckTest, WritesThatAreEqualOnAllReplicasAreNamedOnce) {
  if (!has_copies()) return;
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](torch::Tensor a, torch::Tensor b) {
          sgd.minimize(loss(model, a, b));
          const torch::NoGradGuard no_grad;
          model->second->weight.clamp_(-0.05, 0.05);
        },
        split(named, x), split(named, y));
  }
  const std::string text = warnings();
  EXPECT_TRUE(contains(text, "second.weight")) << text;
  EXPECT_FALSE(contains(text, "first.weight")) << text;
  EXPECT_EQ(text.find("second.weight"), text.rfind("second.weight")) << text;
}

TEST_P(ReplicaCheckTest, UpdatesOfOptimizersAreNoForeignWrites) {
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](torch::Tensor a, torch::Tensor b) {
          adam.minimize(loss(model, a, b), {.clip_norm = 0.1});
          sgd.minimize(loss(model, a, b));
        },
        split(named, x), split(named, y));
    // A write outside of `run` reaches all replicas.
    const torch::NoGradGuard no_grad;
    model->first->bias.mul_(0.5);
  }
  EXPECT_FALSE(contains(warnings(), "[module]")) << warnings();
}

TEST_P(ReplicaCheckTest, ParametersMadeWithoutScopeAreRefused) {
  if (named.replicas == 1) return;
  torch::manual_seed(named.first);  // other values on each worker
  torch::nn::Linear head(4, 2);
  head->to(named.device_of(0), torch::kDouble);
  auto scope = strategy.scope();
  const std::string error = error_of([&] {
    auto body = module_from([] {
      torch::nn::Linear made(4, 4);
      made->to(torch::kDouble);
      return made;
    });
    auto sgd = optimizer<torch::optim::SGD>(
        body,
        [&](torch::nn::LinearImpl& own) {
          std::vector<torch::Tensor> all = own.parameters();
          for (const auto& parameter : head->parameters()) all.push_back(parameter);
          return std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(all)};
        },
        0.1);
    strategy.run([&] {
      const auto input = torch::ones({3, 4}, torch::TensorOptions(torch::kDouble).device(named.device));
      sgd.minimize(head->forward(body->forward(input)).sum());
    });
  });
  EXPECT_FALSE(error.empty());
  EXPECT_TRUE(contains(error, "scope") || contains(error, "not one that the module was made with")) << error;
}

// Buffers are averaged in the step, and differ again where a forward pass follows it.
TEST_P(ReplicaCheckTest, BuffersWrittenAfterTheStepAreComparedAtTheEnd) {
  auto scope = strategy.scope();
  auto model = module_from([] {
    torch::nn::BatchNorm1d norm(36);
    norm->to(torch::kDouble);
    return norm;
  });
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (int i = 0; i < 2; ++i) {
    strategy.run(
        [&](torch::Tensor a) {
          sgd.minimize(model->forward(a.flatten(1)).square().sum());
          model->forward(a.flatten(1));
        },
        split(named, x));
  }
}

TEST_P(ReplicaCheckTest, SeedsInsideRunAreThoseOfTheReplica) {
  torch::manual_seed(7);
  const auto expected = torch::rand({6});
  torch::manual_seed(9);
  const auto draw = [&] {
    torch::rand({3});
    torch::manual_seed(7);
    return torch::rand({6}, torch::TensorOptions(named.device));
  };
  const auto first = strategy.local_results(strategy.run(draw));
  const auto second = strategy.local_results(strategy.run(draw));
  for (const auto& value : first) EXPECT_TRUE(value.cpu().equal(first[0].cpu())) << value;
  EXPECT_TRUE(second[0].cpu().equal(first[0].cpu())) << second[0];
  if (!named.device.is_cpu()) return;
  EXPECT_TRUE(first[0].equal(expected)) << first[0];
  if (named.replicas == 1) return;
  // Each run has drawn its seed from the default generator, which keeps its state otherwise.
  auto generator = at::make_generator<at::CPUGeneratorImpl>(9);
  detail::draw_bits(generator);
  detail::draw_bits(generator);
  EXPECT_TRUE(torch::rand({6}).equal(torch::rand({6}, generator)));
}

TEST_P(ReplicaCheckTest, PureStepsThatSeedDrawTheSameNumbersEachTime) {
  auto step = strategy.pure([&](torch::Tensor a) {
    torch::manual_seed(7);
    return a + torch::rand({6}, torch::TensorOptions(named.device).dtype(torch::kDouble));
  });
  const auto zeros = local_values(named, std::vector<torch::Tensor>(named.replicas, torch::zeros({6}, torch::kDouble)));
  const auto first = strategy.local_results(step(zeros))[0].cpu();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(strategy.local_results(step(zeros))[0].cpu().equal(first)) << i;
}

INSTANTIATE_TEST_SUITE_P(Strategies, ReplicaCheckTest, ::testing::ValuesIn(all_strategies({{2, 1}, {2, 2}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
