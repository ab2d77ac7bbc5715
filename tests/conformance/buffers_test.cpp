// Buffers of modules under every strategy: what replicas write comes together at the end of the run.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;

/// A module whose buffers are written by the tests.
struct StateImpl : torch::nn::Module {
  torch::Tensor mean = register_buffer("mean", torch::full({3}, 10.0));
  torch::Tensor count = register_buffer("count", torch::full({2}, 10, torch::kLong));
  torch::Tensor flag = register_buffer("flag", torch::zeros({2}, torch::kBool));
  torch::Tensor weight = register_parameter("weight", torch::ones({3}));
  torch::Tensor forward(const torch::Tensor& x) { return (weight * x).sum(); }
};
TORCH_MODULE(State);

class BuffersTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
  torch::TensorOptions on_device = torch::TensorOptions(named.device);

  static int id() { return get_replica_context().replica_id_in_sync_group(); }

  /// A tensor that depends on the replica. It is an argument, so that traced replicas have one program.
  PerReplica<torch::Tensor> numbers() const {
    std::vector<torch::Tensor> all;
    for (int r = 0; r < named.replicas; ++r) all.push_back(torch::full({1}, r + 1.0));
    return local_values(named, all);
  }

  /// The values of all replicas of all workers, as rows.
  template <class Read>
  torch::Tensor rows(const Read& read) const {
    const auto values = strategy.run([&] { return read().detach().to(torch::kDouble).reshape({1, -1}).clone(); });
    return strategy.gather(values, 0).cpu();
  }

  template <class Read>
  void expect_all(const Read& read, double value) const {
    const auto all = rows(read);
    EXPECT_EQ(all.size(0), named.replicas);
    EXPECT_TRUE(torch::allclose(all, torch::full_like(all, value))) << all << value;
  }

  double mean_of_numbers() const { return (named.replicas + 1) / 2.0; }
  double sum_of_numbers() const { return named.replicas * mean_of_numbers(); }
};

TEST_P(BuffersTest, DefaultsAreTheMeanAndTheFirst) {
  auto scope = strategy.scope();
  auto model = module<State>();
  strategy.run(
      [&](const torch::Tensor& number) {
        model->mean.add_(number);
        model->count.add_(number.to(torch::kLong));
        model->flag.copy_(number.eq(1.0).expand({2}));
      },
      numbers());
  expect_all([&] { return model->mean; }, 10 + mean_of_numbers());
  expect_all([&] { return model->count; }, 11);
  expect_all([&] { return model->flag; }, 1);
}

TEST_P(BuffersTest, RulesAreChosenByName) {
  auto scope = strategy.scope();
  auto model = module_from([] { return torch::nn::Sequential(State(), State()); });
  const auto state = [&](size_t i) -> StateImpl& { return *model->ptr(i)->as<StateImpl>(); };
  model.set_buffer_rule("*", BufferRule::Own);
  model.set_buffer_rule("0.mean", BufferRule::First);
  model.set_buffer_rule("*.count", BufferRule::Sum);
  EXPECT_THROW(model.set_buffer_rule("*.missing", BufferRule::Own), c10::ValueError);
  EXPECT_THROW(model.set_buffer_rule("*.count", BufferRule::Mean), c10::ValueError);
  EXPECT_THROW(model.set_buffer_rule("0.flag", BufferRule::Sum), c10::ValueError);
  for (int run = 1; run <= 2; ++run) {
    strategy.run(
        [&](const torch::Tensor& number) {
          for (size_t i = 0; i < 2; ++i) {
            state(i).mean.add_(number);
            state(i).count.add_(number.to(torch::kLong));
          }
        },
        numbers());
    expect_all([&] { return state(0).mean; }, 10 + run);
    expect_all([&] { return state(0).count; }, 10 + run * sum_of_numbers());
    expect_all([&] { return state(1).count; }, 10 + run * sum_of_numbers());
    const auto own = rows([&] { return state(1).mean; });
    for (int r = 0; r < named.replicas; ++r) EXPECT_EQ(own[r][0].item<double>(), 10 + run * (r + 1));
  }
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const auto own = rows([&] { return state(1).mean; });
  EXPECT_EQ(own[named.replicas - 1][0].item<double>(), 10 + 2 * named.replicas) << "an optimizer changes nothing";
  if (named.replicas > 1) {
    EXPECT_THROW(model.set_buffer_rule("1.mean", BufferRule::Mean), c10::ValueError);
  }
  model.broadcast();
  model.set_buffer_rule("1.mean", BufferRule::Mean);
  expect_all([&] { return state(1).mean; }, 12);
}

TEST_P(BuffersTest, ChangesOutsideOfRunsReachAllReplicas) {
  auto scope = strategy.scope();
  auto model = module<State>();
  model.set_buffer_rule("mean", BufferRule::Own);
  model.set_buffer_rule("count", BufferRule::Sum);
  const auto write = [&](const torch::Tensor& number) {
    model->mean.add_(number);
    model->count.add_(number.to(torch::kLong));
  };
  strategy.run(write, numbers());
  model->mean.fill_(100);
  model->count.fill_(100);
  expect_all([&] { return model->mean; }, 100);
  strategy.run(write, numbers());
  expect_all([&] { return model->count; }, 100 + sum_of_numbers());
}

TEST_P(BuffersTest, ComplexBuffersAreTheFirst) {
  if (named.is_traced()) GTEST_SKIP() << "XLA's devices have no complex numbers here";
  auto scope = strategy.scope();
  const auto make = [] {
    auto made = std::make_shared<torch::nn::Module>();
    made->register_buffer("first", torch::zeros({2}, torch::kComplexFloat));
    made->register_buffer("mean", torch::zeros({2}, torch::kComplexDouble));
    return made;
  };
  auto model = module_from(make);
  model.set_buffer_rule("mean", BufferRule::Mean);
  strategy.run([&] {
    for (torch::Tensor buffer : model->buffers()) buffer.add_(c10::complex<double>(id() + 1, -(id() + 1)));
  });
  const auto part = [&](size_t i, int64_t side) { return torch::view_as_real(model->buffers()[i]).select(1, side); };
  expect_all([&] { return part(0, 0); }, 1);
  expect_all([&] { return part(0, 1); }, -1);
  expect_all([&] { return part(1, 0); }, mean_of_numbers());
  expect_all([&] { return part(1, 1); }, -mean_of_numbers());
}

/// A discriminator is called again after its own update.
TEST_P(BuffersTest, StatisticsWrittenAfterTheUpdateComeTogether) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::Sequential>(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3));
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  torch::manual_seed(3);
  const auto x = split(named, torch::randn({8 * named.replicas, 3}));
  for (int step = 1; step <= 2; ++step) {
    strategy.run(
        [&](const torch::Tensor& images) {
          sgd.minimize(model->forward(images).square().sum() / named.replicas);
          model->forward(images * 2 + 1);
        },
        x);
    for (const char* name : {"1.running_mean", "1.running_var"}) {
      const auto all = rows([&] { return model->named_buffers()[name]; });
      EXPECT_TRUE(torch::equal(all, all[0].expand_as(all))) << name << all;
    }
    expect_all([&] { return model->named_buffers()["1.num_batches_tracked"]; }, 2 * step);
  }
}

TEST_P(BuffersTest, StatisticsAreTheMeanWithoutAnOptimizer) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::BatchNorm1d>(torch::nn::BatchNorm1dOptions(2).momentum(1.0));
  strategy.run([&](const torch::Tensor& number) { model->forward(number.expand({4, 2}).contiguous()); }, numbers());
  expect_all([&] { return model->running_mean; }, mean_of_numbers());
  expect_all([&] { return model->num_batches_tracked; }, 1);
}

/// LibTorch does not count what batch normalization writes.
TEST_P(BuffersTest, StatisticsOfTheFunctionComeTogether) {
  struct NormImpl : torch::nn::Module {
    torch::Tensor mean = register_buffer("mean", torch::zeros({2}));
    torch::Tensor var = register_buffer("var", torch::ones({2}));
  };
  auto scope = strategy.scope();
  auto model = module_from([] { return std::make_shared<NormImpl>(); });
  strategy.run(
      [&](const torch::Tensor& number) {
        torch::nn::functional::batch_norm(number.expand({4, 2}).contiguous(), model->mean, model->var,
                                          torch::nn::functional::BatchNormFuncOptions().training(true).momentum(1.0));
      },
      numbers());
  expect_all([&] { return model->mean; }, mean_of_numbers());
}

TEST_P(BuffersTest, OneReplicaAloneMayWrite) {
  if (named.is_traced()) GTEST_SKIP() << "traced replicas make the same calls";
  auto scope = strategy.scope();
  auto model = module<State>();
  strategy.run([&] {
    if (id() == named.replicas - 1) model->mean.add_(named.replicas);
  });
  expect_all([&] { return model->mean; }, 11);
}

TEST_P(BuffersTest, DifferentSizesAreAnErrorThatNamesTheBuffer) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  if (named.is_traced()) GTEST_SKIP() << "replicas are traced with equal shapes";
  std::string error = "none";
  {
    auto scope = strategy.scope();
    auto model = module<State>();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    try {
      strategy.run([&] {
        model->mean.resize_({100 * (id() + 1)}).zero_();
        sgd.minimize(model->forward(torch::ones({3}, on_device)));
      });
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
  }
  EXPECT_THAT(error, HasSubstr("buffer=mean"));
  EXPECT_THAT(error, HasSubstr("float32[100]"));
  EXPECT_THAT(error, HasSubstr("float32[200]"));
  if (named.has_workers()) return;
  auto scope = strategy.scope();
  auto model = module<State>();
  model.set_buffer_rule("mean", BufferRule::Own);
  strategy.run([&] { model->mean.resize_({id() + 1}); });
  strategy.run([&] { EXPECT_EQ(model->mean.numel(), id() + 1) << "each replica keeps its own"; });
}

TEST_P(BuffersTest, NothingComesTogetherAfterAFailedRun) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  if (named.is_traced()) GTEST_SKIP() << "traced replicas make the same calls";
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error ends the job";
  auto scope = strategy.scope();
  auto model = module<State>();
  EXPECT_THROW(strategy.run([&] {
    model->mean.fill_(id());
    if (id() == 0) throw std::runtime_error("on purpose");
  }),
               std::runtime_error);
  for (int i = 0; i < named.local; ++i) EXPECT_EQ(model.replica(i).mean.min().item<double>(), i);
  strategy.run([&] { model->mean.fill_(id() + 1); });
  expect_all([&] { return model->mean; }, mean_of_numbers());
}

INSTANTIATE_TEST_SUITE_P(Strategies, BuffersTest, ::testing::ValuesIn(all_strategies()), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
