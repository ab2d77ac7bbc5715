// Layers that synchronise, apart from their numbers under every strategy (tests/conformance/sync_batch_norm_test.cpp):
// which calls are synchronised, and what is refused.

#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using torch::nn::BatchNormOptions;

class SyncNormTest : public ReplicasTest {
 protected:
  /// The mean of each channel as a layer normalizes with it: 0 for synchronised outputs of all replicas.
  template <class M>
  static at::Tensor outputs(const MirroredStrategy& strategy, const M& model, const at::Tensor& x) {
    const auto parts = x.tensor_split(strategy.num_replicas_in_sync());
    const auto y =
        strategy.run([&](const at::Tensor& own) { return model->forward(own); }, PerReplica<at::Tensor>(parts));
    return strategy.gather(y, 0);
  }

  /// Whether the layers of a model synchronise: outputs are those of the whole batch.
  template <class M>
  static bool synchronises(const MirroredStrategy& strategy, const M& model) {
    const at::Tensor x = torch::arange(24, torch::kFloat).view({8, 3});
    const at::Tensor whole = (x - x.mean(0)) / (x.var(0, false) + 1e-5).sqrt();
    return torch::allclose(outputs(strategy, model, x), whole, 1e-4, 1e-4);
  }
};

TEST_F(SyncNormTest, OnlyConvertedLayersSynchronise) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto plain = module<torch::nn::BatchNorm1d>(3);
  auto converted = module<torch::nn::BatchNorm1d>(3);
  EXPECT_EQ(nn::convert_sync_batch_norm(converted), 1);
  EXPECT_FALSE(synchronises(strategy, plain));
  EXPECT_TRUE(synchronises(strategy, converted));
  EXPECT_FALSE(synchronises(strategy, plain));
}

TEST_F(SyncNormTest, ALayerWithoutTensorsIsRefused) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module_from([] {
    return torch::nn::Sequential(torch::nn::BatchNorm1d(3),
                                 torch::nn::BatchNorm1d(BatchNormOptions(3).affine(false).track_running_stats(false)));
  });
  try {
    nn::convert_sync_batch_norm(model);
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer=1"));
  }
  auto first = [&](const at::Tensor& x) { return model->ptr(0)->as<torch::nn::BatchNorm1dImpl>()->forward(x); };
  const at::Tensor x = torch::randn({4, 3});
  const auto y = strategy.run(first, PerReplica<at::Tensor>(x.tensor_split(2)));
  EXPECT_NEAR(y[0].mean().item<double>(), 0, 1e-5) << "nothing was converted";
}

TEST_F(SyncNormTest, AModelWithoutLayersGivesAWarning) {
  std::vector<std::string> lines;
  log::set_sink([&](log::Level, std::string_view line) { lines.emplace_back(line); });
  torch::nn::Linear linear(2, 2);
  EXPECT_EQ(nn::convert_sync_batch_norm(linear), 0);
  log::set_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("found no BatchNorm1d"));
}

TEST_F(SyncNormTest, MarksEndWithTheirLayers) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  for (int i = 0; i < 20; ++i) {
    {
      auto converted = module<torch::nn::BatchNorm1d>(3);
      nn::convert_sync_batch_norm(converted);
      EXPECT_TRUE(synchronises(strategy, converted));
    }
    auto plain = module<torch::nn::BatchNorm1d>(3);
    EXPECT_FALSE(synchronises(strategy, plain)) << "a tensor at the same address";
  }
}

TEST_F(SyncNormTest, ALayerStaysConvertedWhereItsTensorsChange) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module<torch::nn::BatchNorm1d>(3);
  nn::convert_sync_batch_norm(model);
  std::stringstream file;
  torch::save(model, file);
  torch::load(model, file);
  EXPECT_TRUE(synchronises(strategy, model));
  model->to(torch::kDouble);
  model->to(torch::kFloat);
  EXPECT_TRUE(synchronises(strategy, model));
  model->running_mean = torch::zeros({3});
  EXPECT_TRUE(synchronises(strategy, model)) << "the weight is known";
}

TEST_F(SyncNormTest, CheckpointsAreThoseOfBatchNorm) {
  nn::SyncBatchNorm2d sync(4);
  torch::nn::BatchNorm2d plain(4);
  const auto names = [](const torch::nn::Module& module) {
    return std::pair(module.named_parameters().keys(), module.named_buffers().keys());
  };
  EXPECT_EQ(names(*sync), names(*plain));
  {
    const torch::NoGradGuard no_grad;
    plain->weight.fill_(3);
    plain->running_var.fill_(5);
  }
  std::stringstream file;
  torch::save(plain, file);
  torch::load(sync, file);
  EXPECT_TRUE(sync->weight.equal(plain->weight));
  EXPECT_TRUE(sync->running_var.equal(plain->running_var));
  std::stringstream printed;
  printed << *sync;
  EXPECT_EQ(printed.str(),
            "lockstep::nn::SyncBatchNorm2d(4, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
}

TEST_F(SyncNormTest, ACloneSynchronises) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  nn::SyncBatchNorm1d one(BatchNormOptions(3).affine(false));
  one->running_mean.fill_(7);
  one->eval();
  const auto copy = std::dynamic_pointer_cast<nn::SyncBatchNorm1dImpl>(one->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(copy->running_mean.equal(one->running_mean));
  EXPECT_FALSE(copy->running_mean.is_same(one->running_mean));
  EXPECT_FALSE(copy->is_training());
  copy->train();
  auto model = module_from([&] { return nn::SyncBatchNorm1d(copy); });
  EXPECT_TRUE(synchronises(strategy, model));
}

TEST_F(SyncNormTest, AHolderOfTheBaseClassSynchronises) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module_from([] {
    return torch::nn::BatchNorm1d(std::static_pointer_cast<torch::nn::BatchNorm1dImpl>(nn::SyncBatchNorm1d(3).ptr()));
  });
  EXPECT_TRUE(synchronises(strategy, model));
}

TEST_F(SyncNormTest, FunctionsWithTensorsOfALayerSynchronise) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module<torch::nn::BatchNorm1d>(3);
  nn::convert_sync_batch_norm(model);
  namespace F = torch::nn::functional;
  const at::Tensor x = torch::arange(12, torch::kFloat).view({4, 3});
  const auto y = strategy.run(
      [&](const at::Tensor& own) {
        return F::batch_norm(own, model->running_mean, model->running_var, F::BatchNormFuncOptions().training(true));
      },
      PerReplica<at::Tensor>(x.tensor_split(2)));
  EXPECT_NEAR(strategy.gather(y, 0).mean().item<double>(), 0, 1e-5);
  EXPECT_GT(y[1].mean().item<double>(), 0.5);
}

TEST_F(SyncNormTest, OutsideOfRunsAndWithOneReplicaBitsAreLibTorchs) {
  nn::SyncBatchNorm2d sync(4);
  torch::nn::BatchNorm2d plain(4);
  const at::Tensor x = torch::randn({3, 4, 2, 2});
  EXPECT_TRUE(sync->forward(x).equal(plain->forward(x)));
  EXPECT_TRUE(sync->running_var.equal(plain->running_var));
  const auto strategy = mirrored(1);
  auto scope = strategy.scope();
  auto model = module<nn::SyncBatchNorm2d>(4);
  const auto y = strategy.run([&] { return model->forward(x); });
  plain = torch::nn::BatchNorm2d(4);
  EXPECT_TRUE(strategy.local_results(y)[0].equal(plain->forward(x)));
}

TEST_F(SyncNormTest, NoRowsAtAllChangeNothing) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module<nn::SyncBatchNorm2d>(4);
  for (const at::Tensor& empty : {torch::zeros({0, 4, 2, 2}), torch::zeros({3, 4, 0, 2})}) {
    const auto y = strategy.run([&] {
      const at::Tensor own = empty.clone().requires_grad_();
      const at::Tensor made = model->forward(own);
      made.sum().backward();
      EXPECT_EQ(own.grad().sizes(), empty.sizes());
      return made.detach();
    });
    EXPECT_EQ(y[0].sizes(), empty.sizes());
  }
  EXPECT_TRUE(model->running_mean.eq(0).all().item<bool>());
  EXPECT_TRUE(model->running_var.eq(1).all().item<bool>());
}

TEST_F(SyncNormTest, WrongInputsAreErrors) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module<nn::SyncBatchNorm2d>(4);
  for (const at::Tensor& wrong :
       {torch::randn({3, 4}), torch::randn({3, 5, 2, 2}), torch::ones({3, 4, 2, 2}, torch::kLong)}) {
    EXPECT_THROW(strategy.run([&] { model->forward(wrong); }), c10::Error) << wrong.sizes();
  }
}

TEST_F(SyncNormTest, ConversionInsideAReplicaIsAnError) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module<torch::nn::BatchNorm2d>(4);
  EXPECT_THROW(strategy.run([&] { nn::convert_sync_batch_norm(model); }), ContextError);
}

TEST_F(SyncNormTest, SecondDerivativesAreAnError) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  auto model = module<nn::SyncBatchNorm1d>(3);
  const auto step = [&] {
    const at::Tensor x = torch::randn({4, 3}).requires_grad_();
    torch::autograd::grad({model->forward(x).pow(3).sum()}, {x}, {}, c10::nullopt, /*create_graph=*/true);
  };
  EXPECT_THROW(strategy.run(step), c10::NotImplementedError);
}

TEST_F(SyncNormTest, HalfPrecisionIsSummedInFloat) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    auto model = module<nn::SyncBatchNorm2d>(BatchNormOptions(3).momentum(1.0));
    const at::Tensor x = (torch::randn({64, 3, 8, 8}) + 20).to(dtype);
    const auto y = strategy.run(
        [&](const at::Tensor& part) {
          const at::Tensor own = part.detach().requires_grad_();
          const at::Tensor made = model->forward(own);
          made.to(torch::kFloat).pow(2).sum().backward();
          EXPECT_EQ(own.grad().scalar_type(), dtype);
          return made.detach();
        },
        PerReplica<at::Tensor>(x.tensor_split(2)));
    EXPECT_EQ(y[0].scalar_type(), dtype);
    const at::Tensor wide = x.to(torch::kDouble).transpose(0, 1).flatten(1);
    EXPECT_TRUE(torch::allclose(model->running_mean.to(torch::kDouble), wide.mean(1), 1e-5, 1e-5));
    EXPECT_TRUE(torch::allclose(model->running_var.to(torch::kDouble), wide.var(1), 1e-4, 1e-4));
    EXPECT_EQ(model->weight.grad().scalar_type(), torch::kFloat);
  }
}

TEST_F(SyncNormTest, LayoutsGiveTheSameValues) {
  const auto strategy = mirrored(2);
  auto scope = strategy.scope();
  const at::Tensor x = torch::randn({6, 70, 3, 5}, torch::kDouble);
  const at::Tensor factors = torch::randn({6, 70, 3, 5}, torch::kDouble);
  const auto results = [&](const auto& laid_out) {
    auto model = module_from([] {
      nn::SyncBatchNorm2d norm(70);
      norm->to(torch::kDouble);
      return norm;
    });
    const auto parts = strategy.run(
        [&](const at::Tensor& part, const at::Tensor& own_factors) {
          const at::Tensor own = laid_out(part).detach().requires_grad_();
          const at::Tensor y = model->forward(own);
          (y * own_factors).sum().backward();
          return std::tuple(y.detach().contiguous(), own.grad().contiguous());
        },
        PerReplica<at::Tensor>(x.tensor_split(2)), PerReplica<at::Tensor>(factors.tensor_split(2)));
    return std::pair(strategy.gather(std::get<0>(parts), 0), strategy.gather(std::get<1>(parts), 0));
  };
  const auto expected = results([](const at::Tensor& part) { return part.contiguous(); });
  const auto last = results([](const at::Tensor& part) { return part.contiguous(at::MemoryFormat::ChannelsLast); });
  const auto gaps = results([](const at::Tensor& part) { return torch::stack({part, part}, -1).select(-1, 0); });
  for (const auto& other : {last, gaps}) {
    EXPECT_TRUE(torch::allclose(other.first, expected.first, 1e-12, 1e-12));
    EXPECT_TRUE(torch::allclose(other.second, expected.second, 1e-12, 1e-12));
  }
}

/// The numbers of TensorFlow's golden cases `keras_batch_norm`: two batches of 4 rows, momentum 0.5.
TEST_F(SyncNormTest, KerasHasTheSameStatistics) {
  std::vector<double> values;
  for (int i = 0; i < 16; ++i) values.push_back(i % 7 / 4.0);
  const at::Tensor x = torch::tensor(values, torch::kDouble).view({8, 2});
  for (const int replicas : {1, 2, 3, 4}) {
    const auto strategy = mirrored(replicas);
    auto scope = strategy.scope();
    auto model = module_from([] {
      nn::SyncBatchNorm1d norm(BatchNormOptions(2).momentum(0.5).eps(1e-3));
      norm->to(torch::kDouble);
      return norm;
    });
    for (int batch = 0; batch < 2; ++batch) outputs(strategy, model, x.narrow(0, 4 * batch, 4));
    EXPECT_TRUE(torch::allclose(model->running_mean, torch::tensor({0.46875, 0.546875}, torch::kDouble)));
    // Keras averages the biased variance. What the variance of the beginning contributes is the same.
    const double of_first = 0.25;
    const at::Tensor biased = (model->running_var - of_first) * 3 / 4 + of_first;
    EXPECT_TRUE(torch::allclose(biased, torch::tensor({0.4433594, 0.4228516}, torch::kDouble), 1e-6, 1e-6)) << biased;
  }
}

TEST_F(SyncNormTest, ALargeMeanDoesNotCancel) {
  const auto strategy = mirrored(3);
  auto scope = strategy.scope();
  auto model = module<nn::SyncBatchNorm1d>(BatchNormOptions(2).momentum(1.0));
  const at::Tensor x = torch::randn({300, 2}, torch::kDouble) + 1e4;
  const at::Tensor narrow = x.to(torch::kFloat);
  outputs(strategy, model, narrow);
  const at::Tensor wide = narrow.to(torch::kDouble);
  EXPECT_TRUE(torch::allclose(model->running_var.to(torch::kDouble), wide.var(0), 1e-5, 0)) << model->running_var;
}

}  // namespace
}  // namespace lockstep::tests
