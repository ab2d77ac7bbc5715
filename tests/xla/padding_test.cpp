// Options of a run: steps whose sizes change are padded and masked, and options reach the compiler.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "tests/xla/eight_devices.h"

namespace lockstep::xla::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const auto kDouble = torch::TensorOptions().dtype(torch::kDouble);

class PaddingTest : public EightDevicesTest {};

bool is_close(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && torch::allclose(a.cpu(), b, 1e-11, 1e-11, /*equal_nan=*/true);
}

/// Runs a function of one tensor with its first rows, fewer and fewer, and compares with LibTorch on the CPU. Counts
/// compilations and padded executions.
template <class Function>
void expect_padded(const Function& function, const torch::Tensor& x, std::vector<int64_t> sizes, int64_t dim = 0) {
  const TPUStrategy strategy = replicas(1);
  const Counters before = counters();
  for (const int64_t size : sizes) {
    const auto rows = x.narrow(dim, 0, size).contiguous();
    const auto result = strategy.local_results(strategy.run(function, rows))[0];
    EXPECT_TRUE(is_close(result, function(rows))) << size << " rows: " << result.cpu() << "\nwanted " << function(rows);
  }
  EXPECT_LE(counters().compiles - before.compiles, 2) << "one for the full size, one for all others";
  EXPECT_EQ(counters().padded_executions - before.padded_executions, static_cast<int64_t>(sizes.size()) - 1);
}

const std::vector<int64_t> kSizes{8, 5, 3, 2, 7};

TEST_F(PaddingTest, ReductionsOverRowsIgnoreWhatWasAdded) {
  const auto x = torch::randn({8, 3}, kDouble) - 5;
  expect_padded([](const torch::Tensor& own) { return own.log1p().sum(0); }, x + 6, kSizes);
  expect_padded([](const torch::Tensor& own) { return (1 / own).mean(); }, x, {8, 5, 1});
  expect_padded([](const torch::Tensor& own) { return own.amax(0) + own.amin(0); }, x, kSizes);
  expect_padded([](const torch::Tensor& own) { return own.prod(0); }, x, kSizes);
  expect_padded([](const torch::Tensor& own) { return (own > -5).all(0).to(torch::kDouble); }, x, kSizes);
  expect_padded([](const torch::Tensor& own) { return own.var(0); }, x, kSizes);
}

TEST_F(PaddingTest, RowsStayRows) {
  const auto x = torch::randn({8, 4}, kDouble);
  expect_padded([](const torch::Tensor& own) { return own.softmax(1) * own.t().t() + 1; }, x, kSizes);
  expect_padded(
      [](const torch::Tensor& own) {
        return own.view({-1, 2, 2}).transpose(1, 2).reshape({-1, 2});
      },
      x, kSizes);
  expect_padded([](const torch::Tensor& own) { return own.t().matmul(own); }, x, kSizes);
  expect_padded([](const torch::Tensor& own) { return own.narrow(0, 0, 1) + own.narrow(1, 1, 2).sum(); }, x, kSizes);
  expect_padded([](const torch::Tensor& own) { return torch::cat({own, own * 2}, 1).cumsum(1); }, x, kSizes);
  expect_padded([](const torch::Tensor& own) { return own - own.mean(0, true); }, x, kSizes);
}

TEST_F(PaddingTest, ConvolutionsAndTheirGradients) {
  const auto weight = torch::randn({2, 1, 3, 3}, kDouble);
  const auto function = [&](const torch::Tensor& images) {
    auto kernel = weight.to(images.device()).detach().requires_grad_();
    auto pooled = torch::max_pool2d(torch::conv2d(images, kernel, {}, 1, 1), 2);
    pooled.pow(2).mean().backward();
    return kernel.grad();
  };
  expect_padded(function, torch::randn({6, 1, 4, 4}, kDouble), {6, 4, 2});
}

/// A step of training with cross entropy, batch normalization and Adam.
struct Net : torch::nn::Module {
  Net() {
    register_module("table", table);
    register_module("norm", norm);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& words) {
    return out->forward(norm->forward(table->forward(words).mean(1)).tanh());
  }
  torch::nn::Embedding table{10, 4};
  torch::nn::BatchNorm1d norm{4};
  torch::nn::Linear out{4, 3};
};

TEST_F(PaddingTest, TrainingEqualsThatOfTheRowsGiven) {
  const TPUStrategy strategy = replicas(1);
  const auto train = [](const Strategy& any) {
    torch::manual_seed(5);
    auto scope = any.scope();
    auto model = module<Net>();
    const auto adam = optimizer<torch::optim::Adam>(model, 0.05);
    const auto step = [&](const torch::Tensor& words, const torch::Tensor& labels) {
      const auto loss = torch::nn::functional::cross_entropy(model->forward(words), labels);
      adam.minimize(loss);
    };
    for (const int64_t size : {8, 8, 8, 5, 8, 3, 6}) {
      any.run(step, torch::randint(10, {size, 6}, torch::kLong), torch::randint(3, {size}, torch::kLong));
    }
    std::vector<torch::Tensor> all;
    for (const auto& parameter : model->parameters()) all.push_back(parameter.detach().cpu());
    for (const auto& buffer : model->buffers()) all.push_back(buffer.cpu());
    return all;
  };
  const auto wanted = train(OneDeviceStrategy("CPU:0"));
  const Counters before = counters();
  const auto trained = train(strategy);
  EXPECT_EQ(counters().padded_executions - before.padded_executions, 3);
  ASSERT_EQ(trained.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(is_close(trained[i], wanted[i])) << trained[i] << wanted[i];
}

TEST_F(PaddingTest, ReplicasOfDifferentSizesRunOneProgram) {
  const TPUStrategy strategy = replicas(2);
  const auto average = [&](int64_t first, int64_t second) {
    const PerReplica<torch::Tensor> parts({torch::arange(first, kDouble), torch::arange(second, kDouble) * 2});
    return strategy.local_results(strategy.run(
        [](const torch::Tensor& own) { return get_replica_context().all_reduce("sum", own.mean()); }, parts));
  };
  EXPECT_EQ(average(6, 6)[0].item<double>(), 7.5);
  const Counters before = counters();
  EXPECT_EQ(average(5, 3)[0].item<double>(), 4.0);
  EXPECT_EQ(average(2, 4)[1].item<double>(), 3.5);
  EXPECT_EQ(average(6, 1)[1].item<double>(), 2.5);
  EXPECT_EQ(counters().compiles - before.compiles, 1);
  EXPECT_EQ(counters().executions - before.executions, 3);
}

TEST_F(PaddingTest, TwentySizesInBucketsAreFivePrograms) {
  const TPUStrategy strategy = replicas(1);
  const auto function = [](const torch::Tensor& own) { return torch::sin(own).mean(0); };
  const Counters before = counters();
  for (int64_t size = 2; size < 22; ++size) {
    const auto x = torch::randn({size, 3}, kDouble);
    const auto result = strategy.run(RunOptions{.bucketizing_dynamic_shape = true}, function, x);
    EXPECT_TRUE(is_close(strategy.local_results(result)[0], function(x))) << size;
  }
  EXPECT_LE(counters().compiles - before.compiles, 5);
  EXPECT_GE(counters().padded_executions - before.padded_executions, 15);
}

TEST_F(PaddingTest, BucketsAreOfAnyDimension) {
  const TPUStrategy strategy = replicas(1);
  const auto function = [](const torch::Tensor& own) { return own.softmax(1).matmul(own.transpose(1, 2)).sum({1, 2}); };
  const Counters before = counters();
  for (const int64_t length : {6, 9, 10, 11, 12, 13, 14, 15, 16}) {
    const auto x = torch::randn({2, length, 3}, kDouble);
    const auto result = strategy.run(RunOptions{.bucketizing_dynamic_shape = true}, function, x);
    EXPECT_TRUE(is_close(strategy.local_results(result)[0], function(x))) << length;
  }
  EXPECT_EQ(counters().compiles - before.compiles, 2);
}

TEST_F(PaddingTest, ResultsOfPaddedProgramsAreOrdinaryTensors) {
  const TPUStrategy strategy = replicas(1);
  const auto twice = [&](const torch::Tensor& x) {
    return strategy.local_results(strategy.run([](const torch::Tensor& own) { return own * 2; }, x))[0];
  };
  twice(torch::ones({4, 2}, kDouble));
  const auto x = torch::arange(6, kDouble).view({3, 2});
  const auto result = twice(x);
  EXPECT_TRUE(is_close(result, x * 2));
  EXPECT_TRUE(is_close(result.select(0, 2), (x * 2).select(0, 2))) << "a view outside of a run";
  EXPECT_TRUE(is_close(twice(result), x * 4));
  const auto other = strategy.run([](const torch::Tensor& own) { return own.cos().flip({0}); }, result);
  EXPECT_TRUE(is_close(strategy.local_results(other)[0], (x * 2).cos().flip({0}))) << "a program of exact sizes";
}

TEST_F(PaddingTest, StepsThatMasksCannotServeAreCompiledForTheirSize) {
  const TPUStrategy strategy = replicas(1);
  std::vector<std::string> reasons;
  log::set_level(log::Level::Info);
  log::set_sink([&](log::Level, std::string_view line) { reasons.emplace_back(line); });
  const auto compare = [&](const char* name, auto function) {
    const Counters before = counters();
    for (const int64_t size : {6, 4, 3}) {
      const auto x = torch::randn({size, 2}, kDouble);
      EXPECT_TRUE(is_close(strategy.local_results(strategy.run(function, x))[0], function(x)));
    }
    EXPECT_EQ(counters().padded_executions, before.padded_executions) << name;
  };
  compare("sort", [](const torch::Tensor& own) { return std::get<0>(own.sort(0)); });
  compare("flip", [](const torch::Tensor& own) { return own.flip({0}); });
  compare("reshape", [](const torch::Tensor& own) { return own.t().reshape({-1}) * 2; });
  compare("cat", [](const torch::Tensor& own) { return torch::cat({own, own}, 0); });
  compare("narrow", [](const torch::Tensor& own) { return own.narrow(0, own.size(0) - 1, 1).clone(); });
  compare("rand", [](const torch::Tensor& own) { return (torch::rand_like(own) < 2).to(torch::kDouble) * own; });
  log::set_sink({});
  log::set_level(log::Level::Warn);
  EXPECT_THAT(reasons, ::testing::Contains(HasSubstr("random numbers of rows depend on the number of rows")));
}

TEST_F(PaddingTest, OtherSizesCanBeForbidden) {
  const TPUStrategy strategy = replicas(1);
  const RunOptions fixed{.enable_dynamic_batch_size = false};
  const auto function = [](const torch::Tensor& own) { return own.tan().sum(); };
  EXPECT_EQ(error_of([&] { strategy.run(fixed, function, torch::ones({6})); }), "no error");
  EXPECT_THAT(error_of([&] { strategy.run(fixed, function, torch::ones({5})); }),
              AllOf(HasSubstr("enable_dynamic_batch_size=false"), HasSubstr("had the size [6] and now has [5]")));
  EXPECT_THROW(strategy.run(fixed, function, torch::ones({7})), c10::ValueError);
  EXPECT_EQ(error_of([&] { strategy.run(fixed, function, torch::ones({6})); }), "no error");
  EXPECT_EQ(error_of([&] { strategy.run(function, torch::ones({5})); }), "no error");
}

TEST_F(PaddingTest, OptionsReachTheCompiler) {
  const TPUStrategy strategy = replicas(1);
  const auto x = torch::ones({3});
  const auto function = [](const torch::Tensor& own) { return own.cosh(); };
  EXPECT_THAT(error_of([&] {
                strategy.run(RunOptions{.xla_options = {{"xla_no_such_option", "1"}}}, function, x);
              }),
              HasSubstr("xla_no_such_option"));
  const Counters before = counters();
  for (const char* value : {"true", "false"}) {
    const RunOptions options{.xla_options = {{"xla_cpu_enable_fast_math", value}}};
    for (int i = 0; i < 2; ++i) {
      const auto result = strategy.local_results(strategy.run(options, function, x))[0];
      EXPECT_TRUE(torch::allclose(result.cpu(), x.cosh()));
    }
  }
  strategy.run(function, x);
  EXPECT_EQ(counters().compiles - before.compiles, 3) << "other options are another program";
}

}  // namespace
}  // namespace lockstep::xla::test
