// Pure steps of replicas on a GPU that are recorded into a CUDA graph: replays do what `run` does.

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "tests/gpu/gpu_test.h"

namespace lockstep::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 24;

struct SmallNetImpl : torch::nn::Module {
  explicit SmallNetImpl(double dropout)
      : first(register_module("first", torch::nn::Linear(20, 32))),
        norm(register_module("norm", torch::nn::BatchNorm1d(32))),
        drop(register_module("drop", torch::nn::Dropout(dropout))),
        last(register_module("last", torch::nn::Linear(32, 5))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::log_softmax(last->forward(drop->forward(norm->forward(torch::relu(first->forward(x))))), 1);
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};
TORCH_MODULE(SmallNet);

struct Labelled {
  torch::Tensor x;
  torch::Tensor y;
};

Labelled batch_of(int64_t seed, int64_t rows) {
  const auto ramp = torch::arange(rows * 20, torch::kDouble).reshape({rows, 20}) * 0.37 + static_cast<double>(seed);
  return {torch::sin(ramp).to(torch::kFloat), torch::arange(seed, seed + rows) % 5};
}

std::vector<std::string> gpu_names(int replicas) {
  std::vector<std::string> names;
  for (int i = 0; i < replicas; ++i) names.push_back("GPU:" + std::to_string(i));
  return names;
}

Strategy mirrored_gpus(int replicas) {
  set_logical_devices("GPU", 4);
  return MirroredStrategy(gpu_names(replicas));
}

enum class By { Run, Pure };

/// A training of some steps, by `run` or by `pure`.
template <class O, class Options>
struct Training {
  Training(Strategy strategy_, const Options& options, double dropout)
      : strategy(std::move(strategy_)), scope(std::make_unique<Scope>(strategy)) {
    torch::manual_seed(7);
    model = std::make_unique<Module<SmallNet>>(module<SmallNet>(dropout));
    optimizer = std::make_unique<Optimizer<O>>(lockstep::optimizer<O>(*model, options));
  }

  torch::Tensor step(const torch::Tensor& x, const torch::Tensor& y, int64_t rows) {
    const auto losses = torch::nll_loss((*model)->forward(x), y, {}, torch::Reduction::None);
    const auto loss = average_loss(losses, rows);
    optimizer->minimize(loss);
    return loss;
  }

  /// Trains with batches of the given numbers of rows, and returns the losses.
  std::vector<double> train(By by, const std::vector<int64_t>& rows) {
    torch::manual_seed(11);
    auto pure =
        strategy.pure([this](const torch::Tensor& x, const torch::Tensor& y, int64_t n) { return step(x, y, n); });
    std::vector<double> losses;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Labelled batch = batch_of(static_cast<int64_t>(i), rows[i]);
      const auto x = strategy.distribute_values_from_function([&](const ValueContext& context) {
        return batch.x.tensor_split(context.num_replicas_in_sync)[context.replica_id_in_sync_group].to(torch::kCUDA);
      });
      const auto y = strategy.distribute_values_from_function([&](const ValueContext& context) {
        return batch.y.tensor_split(context.num_replicas_in_sync)[context.replica_id_in_sync_group].to(torch::kCUDA);
      });
      const auto loss = by == By::Pure ? pure(x, y, rows[i])
                                       : strategy.run([this](const torch::Tensor& a, const torch::Tensor& b,
                                                             int64_t n) { return step(a, b, n); },
                                                      x, y, rows[i]);
      losses.push_back(strategy.reduce("sum", loss).template item<double>());
    }
    is_replayed = pure.is_replayed();
    why_not = pure.why_not();
    return losses;
  }

  std::vector<torch::Tensor> state() const {
    std::vector<torch::Tensor> all = model->replica(0).parameters();
    for (const torch::Tensor& buffer : model->replica(0).buffers()) all.push_back(buffer);
    return all;
  }

  Strategy strategy;
  std::unique_ptr<Scope> scope;
  std::unique_ptr<Module<SmallNet>> model;
  std::unique_ptr<Optimizer<O>> optimizer;
  bool is_replayed = false;
  std::string why_not;
};

class CapturedStepTest : public GpuTest {
 protected:
  template <class O, class Options>
  static void expect_as_run(const std::function<Strategy()>& make, const Options& options, double dropout,
                            const std::vector<int64_t>& rows) {
    std::vector<double> wanted;
    std::vector<torch::Tensor> wanted_state;
    {
      Training<O, Options> by_run(make(), options, dropout);
      wanted = by_run.train(By::Run, rows);
      for (const torch::Tensor& tensor : by_run.state()) wanted_state.push_back(tensor.detach().cpu());
    }
    Training<O, Options> by_pure(make(), options, dropout);
    const std::vector<double> found = by_pure.train(By::Pure, rows);
    EXPECT_TRUE(by_pure.is_replayed) << by_pure.why_not;
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-5) << "step " << i;
    const std::vector<torch::Tensor> state = by_pure.state();
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(torch::allclose(state[i].detach().cpu(), wanted_state[i], 1e-4, 1e-5)) << "tensor " << i;
    }
  }
};

TEST_F(CapturedStepTest, StochasticGradientDescentAsRun) {
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.05).momentum(0.9);
  expect_as_run<torch::optim::SGD>(kOneDevice, options, 0.0, std::vector<int64_t>(20, kRows));
}

TEST_F(CapturedStepTest, AdamAsRun) {
  expect_as_run<torch::optim::Adam>(kOneDevice, torch::optim::AdamOptions(3e-3), 0.0, std::vector<int64_t>(20, kRows));
}

TEST_F(CapturedStepTest, DropoutDrawsTheNumbersOfRun) {
  expect_as_run<torch::optim::SGD>(kOneDevice, torch::optim::SGDOptions(0.05), 0.4, std::vector<int64_t>(14, kRows));
}

TEST_F(CapturedStepTest, SeveralSizesAsRun) {
  std::vector<int64_t> rows;
  for (int i = 0; i < 8; ++i) rows.insert(rows.end(), {kRows, kRows, kRows - 6});
  rows.push_back(kRows);
  expect_as_run<torch::optim::Adam>(kOneDevice, torch::optim::AdamOptions(3e-3), 0.0, rows);
}

TEST_F(CapturedStepTest, ReplicasOnOneCardAsRun) {
  for (int replicas = 1; replicas <= 4; ++replicas) {
    SCOPED_TRACE(replicas);
    const auto make = [=] { return mirrored_gpus(replicas); };
    expect_as_run<torch::optim::Adam>(make, torch::optim::AdamOptions(3e-3), 0.0, std::vector<int64_t>(14, kRows));
  }
}

TEST_F(CapturedStepTest, ReplicasDrawTheNumbersOfRun) {
  const auto make = [] { return mirrored_gpus(2); };
  expect_as_run<torch::optim::SGD>(make, torch::optim::SGDOptions(0.05), 0.4, std::vector<int64_t>(14, kRows));
}

TEST_F(CapturedStepTest, ResultsStayAndArgumentsMayComeFromTheHost) {
  const auto strategy = kOneDevice();
  auto step = strategy.pure([](const torch::Tensor& x) { return std::make_pair(x * 2, x.sum()); });
  std::vector<std::pair<torch::Tensor, torch::Tensor>> results;
  for (int i = 0; i < 12; ++i) results.push_back(step(torch::full({3}, static_cast<double>(i), torch::kFloat)));
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(results[i].first[1].item<double>(), 2 * i);
    EXPECT_EQ(results[i].second.item<double>(), 3 * i);
    EXPECT_TRUE(results[i].first.is_cuda());
  }
}

TEST_F(CapturedStepTest, NumbersOfReplicasAreTheirOwn) {
  const auto strategy = mirrored_gpus(2);
  auto step = strategy.pure(
      [](const torch::Tensor& x) { return std::make_pair(x + 1, get_replica_context().replica_id_in_sync_group()); });
  for (int i = 0; i < 5; ++i) {
    const auto result = step(torch::ones({2}));
    EXPECT_EQ(result.second[1], 1);
  }
  EXPECT_FALSE(step.is_replayed());
}

TEST_F(CapturedStepTest, ModesAndLoadedMemoryAreFollowed) {
  const auto strategy = kOneDevice();
  auto scope = strategy.scope();
  auto model = module<SmallNet>(0.5);
  auto step = strategy.pure([&](const torch::Tensor& x) {
    const torch::NoGradGuard no_grad;
    return model->forward(x);
  });
  const auto x = batch_of(1, kRows).x.to(torch::kCUDA);
  for (int i = 0; i < 6; ++i) step(x);
  model.eval();
  torch::Tensor own;
  for (int i = 0; i < 6; ++i) own = step(x);
  EXPECT_TRUE(torch::allclose(own, step(x)));
  {
    const torch::NoGradGuard no_grad;
    model->last->bias.set_data(model->last->bias + 1);
    model->last->weight.set_data(torch::zeros_like(model->last->weight));
  }
  const auto now = step(x);
  EXPECT_TRUE(torch::allclose(now, strategy.run(
                                       [&](const torch::Tensor& a) {
                                         const torch::NoGradGuard no_grad;
                                         return model->forward(a);
                                       },
                                       x)));
}

TEST_F(CapturedStepTest, LearningRatesMayChange) {
  const auto train = [](By by) {
    Training<torch::optim::Adam, torch::optim::AdamOptions> training(kOneDevice(), torch::optim::AdamOptions(1e-2),
                                                                     0.0);
    const Labelled batch = batch_of(3, kRows);
    const auto x = batch.x.to(torch::kCUDA);
    const auto y = batch.y.to(torch::kCUDA);
    const auto fn = [&](const torch::Tensor& a, const torch::Tensor& b) { return training.step(a, b, kRows); };
    auto pure = training.strategy.pure(fn);
    std::vector<double> losses;
    for (int i = 0; i < 16; ++i) {
      training.optimizer->set_lr(1e-2 / (1 + i));
      const auto loss = by == By::Pure ? pure(x, y) : training.strategy.run(fn, x, y);
      losses.push_back(training.strategy.reduce("sum", loss).template item<double>());
    }
    return losses;
  };
  const auto wanted = train(By::Run);
  const auto found = train(By::Pure);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-5) << i;
}

/// The losses and the last weight of a training whose function is `step(optimizer, loss)`.
template <class StepFunction>
std::pair<std::vector<double>, torch::Tensor> train_with(By by, StepFunction&& step, std::string* why_not = nullptr) {
  Training<torch::optim::SGD, torch::optim::SGDOptions> training(kOneDevice(), torch::optim::SGDOptions(0.05), 0.0);
  const Labelled batch = batch_of(3, kRows);
  const auto x = batch.x.to(torch::kCUDA);
  const auto y = batch.y.to(torch::kCUDA);
  const auto fn = [&](const torch::Tensor& a, const torch::Tensor& b) {
    const auto loss = average_loss(torch::nll_loss((*training.model)->forward(a), b, {}, torch::Reduction::None));
    step(*training.optimizer, loss);
    return loss.detach();
  };
  auto pure = training.strategy.pure(fn);
  std::vector<double> losses;
  for (int i = 0; i < 12; ++i) {
    const auto loss = by == By::Pure ? pure(x, y) : training.strategy.run(fn, x, y);
    losses.push_back(training.strategy.reduce("sum", loss).template item<double>());
  }
  if (why_not != nullptr) *why_not = pure.why_not();
  return {losses, (*training.model)->last->weight.detach().cpu()};
}

template <class StepFunction>
std::string expect_same_training(StepFunction&& step) {
  const auto [wanted, wanted_weight] = train_with(By::Run, step);
  std::string why_not;
  const auto [found, weight] = train_with(By::Pure, step, &why_not);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-5) << i;
  EXPECT_TRUE(torch::allclose(weight, wanted_weight, 1e-4, 1e-5));
  return why_not;
}

TEST_F(CapturedStepTest, StepsByHandAsRun) {
  EXPECT_EQ(expect_same_training([](auto& optimizer, const torch::Tensor& loss) {
              optimizer.zero_grad();
              loss.backward();
              optimizer.step();
            }),
            "");
  EXPECT_EQ(expect_same_training([](auto& optimizer, const torch::Tensor& loss) {
              loss.backward();
              optimizer.step();
              optimizer.zero_grad();
            }),
            "");
}

TEST_F(CapturedStepTest, ARecordingThatFailsLeavesNoGradients) {
  EXPECT_THAT(expect_same_training([](auto& optimizer, const torch::Tensor& loss) {
                loss.backward();
                optimizer.clip_grad_norm(0.5);  // reads the norm
                optimizer.step();
                optimizer.zero_grad();
              }),
              HasSubstr("_local_scalar_dense"));
}

TEST_F(CapturedStepTest, GradientsOfOtherCallsAreRefused) {
  EXPECT_THAT(expect_same_training([](auto& optimizer, const torch::Tensor& loss) {
                loss.backward();  // they add up
                optimizer.step();
              }),
              HasSubstr("gradients of an earlier call"));
  const auto train = [](By by) {
    Training<torch::optim::SGD, torch::optim::SGDOptions> training(kOneDevice(), torch::optim::SGDOptions(0.05), 0.0);
    const Labelled batch = batch_of(3, kRows);
    const auto x = batch.x.to(torch::kCUDA);
    const auto y = batch.y.to(torch::kCUDA);
    const auto gradients = [&](const torch::Tensor& a, const torch::Tensor& b) {
      training.optimizer->accumulate(
          average_loss(torch::nll_loss((*training.model)->forward(a), b, {}, torch::Reduction::None), kRows));
    };
    const auto update = [&] { training.optimizer->apply(); };
    auto pure_gradients = training.strategy.pure(gradients);
    auto pure_update = training.strategy.pure(update);
    for (int i = 0; i < 8; ++i) {
      by == By::Pure ? pure_gradients(x, y) : training.strategy.run(gradients, x, y);
      by == By::Pure ? pure_gradients(x, y) : training.strategy.run(gradients, x, y);
      by == By::Pure ? pure_update() : training.strategy.run(update);
    }
    return (*training.model)->last->weight.detach().cpu();
  };
  EXPECT_TRUE(torch::allclose(train(By::Pure), train(By::Run), 1e-4, 1e-5));
}

TEST_F(CapturedStepTest, GraphsAreMadeAgainAfterAllWereDropped) {
  const auto strategy = kOneDevice();
  auto step = strategy.pure([](const torch::Tensor& x) { return torch::dropout(x, 0.5, true); });
  const auto ones = [](int64_t rows) { return torch::ones({rows}, torch::kCUDA); };
  for (int i = 0; i < 4; ++i) step(ones(5));
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  for (int64_t rows = 10; rows < 30; ++rows) step(ones(rows));
  for (int i = 0; i < 4; ++i) step(ones(7));
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  EXPECT_NE(torch::rand({1}, torch::kCUDA).item<double>(), torch::rand({1}, torch::kCUDA).item<double>());
}

TEST_F(CapturedStepTest, SizesThatComeBackAreNotCounted) {
  const auto strategy = kOneDevice();
  auto step = strategy.pure([](const torch::Tensor& x) { return x + 1; });
  for (int round = 0; round < 6; ++round) {
    for (int64_t rows = 1; rows <= 20; ++rows) step(torch::ones({rows}, torch::kCUDA));
  }
  for (int i = 0; i < 3; ++i) step(torch::ones({3}, torch::kCUDA));
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
}

TEST_F(CapturedStepTest, ArgumentsMayBeConjugated) {
  const auto strategy = kOneDevice();
  auto step = strategy.pure([](const torch::Tensor& z) { return torch::imag(z).clone(); });
  for (int i = 0; i < 5; ++i) {
    const auto z = torch::full({3}, c10::complex<double>(1, i), torch::kCUDA);
    EXPECT_EQ(torch::Tensor(step(z.conj()))[0].item<double>(), -i);
  }
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
}

TEST_F(CapturedStepTest, EvaluationIsRecordedBeforeTheFirstUpdate) {
  Training<torch::optim::Adam, torch::optim::AdamOptions> training(kOneDevice(), torch::optim::AdamOptions(1e-2), 0.0);
  const auto x = batch_of(3, kRows).x.to(torch::kCUDA);
  auto step = training.strategy.pure([&](const torch::Tensor& a) {
    const torch::NoGradGuard no_grad;
    return (*training.model)->forward(a);
  });
  for (int i = 0; i < 4; ++i) step(x);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
}

TEST_F(CapturedStepTest, TwoThreadsWithAStrategyEach) {
  const auto train = [](int64_t seed) {
    const auto strategy = kOneDevice();
    auto step = strategy.pure([](const torch::Tensor& x) { return x * 2 + 1; });
    for (int i = 0; i < 300; ++i) {
      const auto value = static_cast<double>(seed * 1000 + i);
      const torch::Tensor result = step(torch::full({8}, value, torch::kCUDA));
      ASSERT_EQ(result[0].item<double>(), value * 2 + 1);
    }
  };
  std::thread other(train, 1);
  train(2);
  other.join();
}

}  // namespace
}  // namespace lockstep::test
