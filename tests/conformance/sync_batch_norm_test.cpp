// Synchronised batch normalization under every strategy: what one device computes of the whole batch.

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using torch::nn::BatchNormOptions;

constexpr double kNormTolerance = 1e-9;
constexpr TpuSize kNormSizes[] = {{1, 1}, {2, 1}};

/// What a layer gives for two batches, and what it holds after them.
struct NormResults {
  torch::Tensor outputs, input_gradients, weight_gradient, bias_gradient, running_mean, running_var, batches;

  void expect_close(const NormResults& other) const {
    const auto compare = [](const char* name, const torch::Tensor& a, const torch::Tensor& b) {
      ASSERT_EQ(a.defined(), b.defined()) << name;
      if (!a.defined()) return;
      ASSERT_EQ(a.sizes(), b.sizes()) << name;
      EXPECT_TRUE(torch::allclose(a, b, kNormTolerance, kNormTolerance)) << name << "\n" << a << "\n" << b;
    };
    compare("outputs", outputs, other.outputs);
    compare("input gradients", input_gradients, other.input_gradients);
    compare("weight gradient", weight_gradient, other.weight_gradient);
    compare("bias gradient", bias_gradient, other.bias_gradient);
    compare("running_mean", running_mean, other.running_mean);
    compare("running_var", running_var, other.running_var);
    compare("num_batches_tracked", batches, other.batches);
  }
};

torch::Tensor data_of(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().cpu().clone() : torch::Tensor();
}

/// A layer in double precision, with a weight and a bias that are not those of the beginning.
template <class Holder>
Holder make_norm(const BatchNormOptions& options) {
  Holder norm(options);
  norm->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  if (options.affine()) {
    norm->weight.copy_(torch::linspace(0.5, 2, options.num_features(), torch::kDouble));
    norm->bias.copy_(torch::linspace(-1, 1, options.num_features(), torch::kDouble));
  }
  return norm;
}

/// Two batches with their factors, by which outputs are multiplied for the loss.
struct NormBatches {
  std::vector<torch::Tensor> x, factors;

  NormBatches(int64_t rows, const std::vector<int64_t>& row) {
    torch::manual_seed(5);
    std::vector<int64_t> shape{rows};
    shape.insert(shape.end(), row.begin(), row.end());
    for (int i = 0; i < 2; ++i) {
      // A mean that is large beside the deviation: sums of squares would cancel.
      x.push_back(torch::randn(shape, torch::kDouble) + 100 * (i + 1));
      factors.push_back(torch::randn(shape, torch::kDouble));
    }
  }
};

template <class Plain>
NormResults plain_results(const BatchNormOptions& options, const NormBatches& batches) {
  auto norm = make_norm<Plain>(options);
  NormResults results;
  std::vector<torch::Tensor> outputs, gradients;
  for (size_t i = 0; i < batches.x.size(); ++i) {
    const auto x = batches.x[i].clone().requires_grad_();
    const auto y = norm->forward(x);
    (y * batches.factors[i]).sum().backward();
    outputs.push_back(y.detach());
    gradients.push_back(x.grad());
  }
  results.outputs = torch::cat(outputs);
  results.input_gradients = torch::cat(gradients);
  if (options.affine()) results.weight_gradient = norm->weight.grad();
  if (options.affine()) results.bias_gradient = norm->bias.grad();
  results.running_mean = data_of(norm->running_mean);
  results.running_var = data_of(norm->running_var);
  results.batches = data_of(norm->num_batches_tracked);
  return results;
}

/// Numbers of rows of each replica.
using Division = std::vector<int64_t>;

PerReplica<torch::Tensor> divided(const NamedStrategy& named, const torch::Tensor& batch, const Division& rows) {
  return local_values(named, batch.split_with_sizes(rows));
}

template <class Holder, bool converts>
NormResults results_under(const NamedStrategy& named, const Strategy& strategy, const BatchNormOptions& options,
                          const NormBatches& batches, const Division& rows) {
  auto scope = strategy.scope();
  auto model = module_from([&] { return make_norm<Holder>(options); });
  if (converts) {
    EXPECT_EQ(nn::convert_sync_batch_norm(model), 1);
  }
  NormResults results;
  std::vector<torch::Tensor> outputs, gradients;
  for (size_t i = 0; i < batches.x.size(); ++i) {
    const auto [y, dx] = strategy.run(
        [&](const torch::Tensor& x, const torch::Tensor& factors) {
          const torch::Tensor own = x.detach().clone().requires_grad_();
          const torch::Tensor y = model->forward(own);
          (y * factors).sum().backward();
          return std::tuple(y.detach(), own.grad());
        },
        divided(named, batches.x[i], rows), divided(named, batches.factors[i], rows));
    outputs.push_back(all_rows(named, strategy, y));
    gradients.push_back(all_rows(named, strategy, dx));
  }
  const auto of_replicas = [&](const auto& read) {
    const auto values = strategy.run([&] { return read().detach().clone().unsqueeze(0); });
    return strategy.gather(values, 0).cpu();
  };
  results.outputs = torch::cat(outputs);
  results.input_gradients = torch::cat(gradients);
  if (options.affine()) {
    results.weight_gradient = of_replicas([&] { return model->weight.grad(); }).sum(0);
    results.bias_gradient = of_replicas([&] { return model->bias.grad(); }).sum(0);
  }
  if (!options.track_running_stats()) return results;
  const auto equal = [&](const auto& read) {
    const torch::Tensor all = of_replicas(read);
    EXPECT_EQ(all.size(0), named.replicas);
    EXPECT_TRUE(all.eq(all[0]).all().template item<bool>()) << all;
    return all[0].clone();
  };
  results.running_mean = equal([&] { return model->running_mean; });
  results.running_var = equal([&] { return model->running_var; });
  results.batches = equal([&] { return model->num_batches_tracked; });
  return results;
}

class SyncBatchNormTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  NamedStrategy named = GetParam();
  Strategy strategy = named.make();

  /// Equal parts; the first ones take the remainder.
  Division even(int64_t rows) const {
    Division division;
    for (int64_t r = 0; r < named.replicas; ++r) {
      division.push_back(rows / named.replicas + (r < rows % named.replicas ? 1 : 0));
    }
    return division;
  }

  template <class Plain, class Sync>
  void expect_as_plain(const BatchNormOptions& options, const std::vector<int64_t>& row, const Division& rows) {
    const NormBatches batches(std::accumulate(rows.begin(), rows.end(), int64_t{0}), row);
    const NormResults expected = plain_results<Plain>(options, batches);
    results_under<Sync, false>(named, strategy, options, batches, rows).expect_close(expected);
    const bool is_known = options.affine() || options.track_running_stats();
    const int64_t positions = std::accumulate(row.begin() + 1, row.end(), int64_t{1}, std::multiplies<>());
    // LibTorch's modules refuse a batch of one value for each channel themselves.
    const bool has_one = std::count(rows.begin(), rows.end(), 1) > 0 && positions == 1;
    if (is_known && !has_one) {
      results_under<Plain, true>(named, strategy, options, batches, rows).expect_close(expected);
    }
  }
};

TEST_P(SyncBatchNormTest, EveryRemainder) {
  // Programs of XLA take a second to compile.
  const int64_t step = named.is_traced() ? named.replicas - 1 : 1;
  for (int64_t rows = 2; rows <= 2 * named.replicas + 1; rows += std::max<int64_t>(step, 1)) {
    SCOPED_TRACE(rows);
    expect_as_plain<torch::nn::BatchNorm1d, nn::SyncBatchNorm1d>(BatchNormOptions(3), {3}, even(rows));
  }
}

TEST_P(SyncBatchNormTest, EveryDimension) {
  const auto rows = even(2 * named.replicas + 1);
  expect_as_plain<torch::nn::BatchNorm1d, nn::SyncBatchNorm1d>(BatchNormOptions(3), {3, 5}, rows);
  expect_as_plain<torch::nn::BatchNorm2d, nn::SyncBatchNorm2d>(BatchNormOptions(3), {3, 4, 5}, rows);
  expect_as_plain<torch::nn::BatchNorm3d, nn::SyncBatchNorm3d>(BatchNormOptions(3), {3, 2, 3, 4}, rows);
}

TEST_P(SyncBatchNormTest, EveryOption) {
  const auto rows = even(3 * named.replicas - 1);
  for (const bool affine : {false, true}) {
    for (const bool track : {false, true}) {
      SCOPED_TRACE(c10::str("affine=", affine, ", track_running_stats=", track));
      const auto options = BatchNormOptions(2).affine(affine).track_running_stats(track).eps(0.01).momentum(0.3);
      expect_as_plain<torch::nn::BatchNorm2d, nn::SyncBatchNorm2d>(options, {2, 3, 2}, rows);
    }
  }
  const auto cumulative = BatchNormOptions(2).momentum(c10::nullopt);
  expect_as_plain<torch::nn::BatchNorm2d, nn::SyncBatchNorm2d>(cumulative, {2, 3, 2}, rows);
}

TEST_P(SyncBatchNormTest, UnequalAndEmptyBatches) {
  for (const int64_t full : {int64_t{0}, int64_t{named.replicas} - 1}) {
    Division rows(static_cast<size_t>(named.replicas), 0);
    rows[static_cast<size_t>(full)] = 5;
    expect_as_plain<torch::nn::BatchNorm2d, nn::SyncBatchNorm2d>(BatchNormOptions(3), {3, 2, 2}, rows);
    for (size_t r = 0; r < rows.size(); ++r) rows[r] += static_cast<int64_t>(3 * r);
    expect_as_plain<torch::nn::BatchNorm1d, nn::SyncBatchNorm1d>(BatchNormOptions(3), {3}, rows);
  }
}

TEST_P(SyncBatchNormTest, OneValueForAChannelIsAnErrorOfAllReplicasTogether) {
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error may end the job before others have begun";
  auto scope = strategy.scope();
  auto model = module_from([] { return make_norm<nn::SyncBatchNorm1d>(BatchNormOptions(3)); });
  const auto step = [&](const torch::Tensor& x) { return model->forward(x).sum(); };
  const auto parts = [&](int64_t rows) { return divided(named, torch::randn({rows, 3}, torch::kDouble), even(rows)); };
  try {
    strategy.run(step, parts(1));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Expected more than 1 value per channel"));
  }
  EXPECT_NO_THROW(strategy.run(step, parts(2)));
}

TEST_P(SyncBatchNormTest, EvaluationIsLibTorchs) {
  auto scope = strategy.scope();
  auto model = module_from([] { return make_norm<nn::SyncBatchNorm2d>(BatchNormOptions(3)); });
  auto converted = module_from([] { return make_norm<torch::nn::BatchNorm2d>(BatchNormOptions(3)); });
  nn::convert_sync_batch_norm(converted);
  auto plain = make_norm<torch::nn::BatchNorm2d>(BatchNormOptions(3));
  model.eval();
  converted.eval();
  plain->eval();
  const torch::Tensor x = torch::randn({2 * named.replicas + 1, 3, 2, 2}, torch::kDouble);
  const auto y = strategy.run([&](const torch::Tensor& own) { return model->forward(own); }, split(named, x));
  EXPECT_TRUE(torch::allclose(all_rows(named, strategy, y), plain->forward(x), kNormTolerance, kNormTolerance));
  const auto z = strategy.run([&](const torch::Tensor& own) { return converted->forward(own); }, split(named, x));
  EXPECT_TRUE(torch::allclose(all_rows(named, strategy, z), plain->forward(x), kNormTolerance, kNormTolerance));
  if (named.is_traced() || named.has_workers()) return;
  // Not a collective: replicas may call it differently often.
  strategy.run([&] {
    const int times = get_replica_context().replica_id_in_sync_group();
    for (int i = 0; i < times; ++i)
      model->forward(torch::ones({1, 3, 2, 2}, torch::dtype(torch::kDouble).device(named.device)));
  });
}

/// A user's class: its layers are members, which it calls itself.
struct NormedCnnImpl : torch::nn::Module {
  NormedCnnImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("hidden", hidden);
    register_module("rest", rest);
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm->forward(conv->forward(x)));
    return torch::log_softmax(rest->forward(hidden->forward(x.flatten(1)).view({x.size(0), 6, 2})).flatten(1), 1);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear hidden{4 * 4 * 4, 12};
  torch::nn::Sequential rest{torch::nn::BatchNorm1d(BatchNormOptions(6).momentum(0.2))};
};
TORCH_MODULE(NormedCnn);

struct LabelledBatch {
  torch::Tensor x, y;
};

std::vector<LabelledBatch> labelled_batches(int replicas) {
  torch::manual_seed(11);
  std::vector<LabelledBatch> batches;
  for (const int64_t rows :
       {2 * replicas, 2 * replicas, 2 * replicas + 1, 3 * replicas - 1, std::max(replicas - 1, 1)}) {
    batches.push_back({torch::randn({rows, 1, 4, 4}, torch::kDouble), torch::randint(12, {rows}, torch::kLong)});
  }
  return batches;
}

template <class MakeModel>
void train_and_compare(const NamedStrategy& named, const Strategy& strategy, const MakeModel& make_model) {
  const auto batches = labelled_batches(named.replicas);
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::manual_seed(3);
  NormedCnn plain;
  torch::optim::SGD plain_sgd(plain->parameters(), options);
  for (const LabelledBatch& batch : batches) {
    plain_sgd.zero_grad();
    torch::nll_loss(plain->forward(batch.x), batch.y).backward();
    plain_sgd.step();
  }
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = make_model();
  auto sgd = optimizer<torch::optim::SGD>(model, options);
  for (const LabelledBatch& batch : batches) {
    strategy.run(
        [&](const torch::Tensor& x, const torch::Tensor& y) {
          const auto losses = torch::nll_loss(model->forward(x), y, {}, torch::Reduction::None);
          sgd.minimize(average_loss(losses, batch.x.size(0)));
        },
        split(named, batch.x), split(named, batch.y));
  }
  for (int replica = 0; replica < model.num_replicas(); ++replica) {
    const auto own_parameters = model.replica(replica).named_parameters(),
               own_buffers = model.replica(replica).named_buffers();
    for (const auto& item : plain->named_parameters()) {
      const torch::Tensor own = own_parameters[item.key()].detach().cpu();
      EXPECT_TRUE(torch::allclose(own, item.value(), kNormTolerance, kNormTolerance)) << item.key();
    }
    for (const auto& item : plain->named_buffers()) {
      const torch::Tensor own = own_buffers[item.key()].cpu();
      EXPECT_TRUE(torch::allclose(own, item.value(), kNormTolerance, kNormTolerance))
          << item.key() << own << item.value();
    }
  }
}

TEST_P(SyncBatchNormTest, AConvertedModelTrainsAsOnOneDevice) {
  train_and_compare(named, strategy, [] {
    auto model = module<NormedCnn>();
    EXPECT_EQ(nn::convert_sync_batch_norm(model), 2);
    EXPECT_EQ(nn::convert_sync_batch_norm(model), 0) << "a second call changes nothing";
    return model;
  });
}

TEST_P(SyncBatchNormTest, AModelThatIsConvertedWhereItIsMade) {
  train_and_compare(named, strategy, [] {
    return module_from([] {
      NormedCnn made;
      EXPECT_EQ(nn::convert_sync_batch_norm(made), 2);
      return made;
    });
  });
}

TEST_P(SyncBatchNormTest, OneModelForAllReplicasIsClonedWithItsLayers) {
  auto scope = strategy.scope();
  auto shared = make_norm<torch::nn::BatchNorm2d>(BatchNormOptions(3));
  nn::convert_sync_batch_norm(shared);
  auto model = module_from([&] { return shared; });
  const torch::Tensor x = torch::randn({2 * named.replicas, 3, 2, 2}, torch::kDouble);
  const auto y = strategy.run([&](const torch::Tensor& own) { return model->forward(own); }, split(named, x));
  auto plain = make_norm<torch::nn::BatchNorm2d>(BatchNormOptions(3));
  EXPECT_TRUE(torch::allclose(all_rows(named, strategy, y), plain->forward(x), kNormTolerance, kNormTolerance));
}

TEST_P(SyncBatchNormTest, StatisticsOfPlainLayersStayFiniteWhereReplicasHaveNoRows) {
  auto scope = strategy.scope();
  auto model = module_from([] { return make_norm<torch::nn::BatchNorm2d>(BatchNormOptions(3)); });
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (const int64_t rows : {2 * named.replicas, 1}) {
    strategy.run([&](const torch::Tensor& x) { sgd.minimize(average_loss(model->forward(x).flatten(1).sum(1), rows)); },
                 split(named, torch::randn({rows, 3, 2, 2}, torch::kDouble)));
  }
  for (int replica = 0; replica < model.num_replicas(); ++replica) {
    for (const torch::Tensor& buffer : model.replica(replica).buffers()) {
      EXPECT_TRUE(torch::isfinite(buffer.cpu().to(torch::kDouble)).all().item<bool>()) << buffer.cpu();
    }
    for (const torch::Tensor& parameter : model.replica(replica).parameters()) {
      EXPECT_TRUE(torch::isfinite(parameter.detach().cpu()).all().item<bool>()) << parameter.detach().cpu();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, SyncBatchNormTest, ::testing::ValuesIn(all_strategies(kNormSizes)), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
