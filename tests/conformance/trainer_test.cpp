// Trainer under every strategy equals the loop of plain LibTorch on one device: parameters, losses, metrics,
// predictions, for every remainder.

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"
#include "tests/support/test_folder.h"

namespace lockstep::conformance {
namespace {

constexpr double kTrainerTolerance = 1e-9;
constexpr int64_t kTrainerEpochs = 2;

/// A convolutional network whose batch normalization takes the statistics of the whole batch.
struct TrainerCnnImpl : CnnImpl {
  TrainerCnnImpl() { norm->train(); }
};
TORCH_MODULE(TrainerCnn);

struct LabelledImages {
  torch::Tensor x;
  torch::Tensor y;

  auto dataset() const { return data::from_tensor_slices(std::tuple{x, y}); }
};

LabelledImages labelled_images(int64_t count) {
  torch::manual_seed(11);
  const auto x = torch::randn({count, 1, 6, 6}, torch::kDouble);
  return {x, torch::randint(5, {count}, torch::kLong)};
}

struct TrainerRun {
  std::vector<Logs> epochs;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> buffers;
  torch::Tensor predictions;
};

Logs plain_logs(torch::Tensor losses, torch::Tensor correct, const std::string& prefix) {
  return {{prefix + "loss", losses.mean().item<double>()},
          {prefix + "accuracy", correct.to(torch::kDouble).mean().item<double>()}};
}

/// Each batch has `batch` rows, the last one fewer.
template <class M, class O, class Options>
TrainerRun train_by_hand(const LabelledImages& images, int64_t batch, const Options& options) {
  torch::manual_seed(3);
  M model;
  O optimizer(model->parameters(), options);
  TrainerRun trained;
  for (int64_t epoch = 0; epoch < kTrainerEpochs; ++epoch) {
    std::vector<torch::Tensor> losses;
    std::vector<torch::Tensor> correct;
    const auto ys = images.y.split(batch);
    const auto xs = images.x.split(batch);
    for (size_t i = 0; i < xs.size(); ++i) {
      const auto output = model->forward(xs[i]);
      const auto each = torch::nll_loss(output, ys[i], {}, torch::Reduction::None);
      optimizer.zero_grad();
      each.mean().backward();
      optimizer.step();
      losses.push_back(each.detach());
      correct.push_back(output.argmax(1).eq(ys[i]));
    }
    Logs logs = plain_logs(torch::cat(losses), torch::cat(correct), "");
    const torch::NoGradGuard no_grad;
    model->eval();
    trained.predictions = model->forward(images.x);
    model->train();
    logs.merge(plain_logs(torch::nll_loss(trained.predictions, images.y, {}, torch::Reduction::None),
                          trained.predictions.argmax(1).eq(images.y), "val_"));
    trained.epochs.push_back(logs);
  }
  trained.parameters = model->parameters();
  trained.buffers = model->buffers();
  return trained;
}

template <class M, class O, class Options>
TrainerRun train_by_trainer(const NamedStrategy& named, const LabelledImages& images, int64_t batch,
                            const Options& options) {
  const Strategy strategy = named.make();
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<M>();
  if constexpr (std::is_same_v<M, TrainerCnn>) nn::convert_sync_batch_norm(model);
  auto optimizer = lockstep::optimizer<O>(model, options);
  Trainer trainer(strategy, model, optimizer, losses::nll(),
                  {.metrics = {metrics::sparse_categorical_accuracy("accuracy")}});
  const auto batches = images.dataset().batch(batch);
  TrainerRun trained;
  trained.epochs = trainer.fit(batches, {.epochs = kTrainerEpochs, .validation = batches, .verbose = false}).epochs;
  for (const auto& parameter : model.replica(0).parameters()) trained.parameters.push_back(parameter.cpu());
  for (const auto& buffer : model.replica(0).buffers()) trained.buffers.push_back(buffer.cpu());
  trained.predictions = trainer.predict(batches);
  return trained;
}

/// Workers return rows in another order: rows are compared by their sorted sums.
torch::Tensor in_any_order(const torch::Tensor& rows) { return std::get<0>(rows.exp().select(1, 0).sort()); }

void expect_all_close(const std::vector<torch::Tensor>& actual, const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], kTrainerTolerance, kTrainerTolerance))
        << "tensor " << i << ": " << actual[i] << expected[i];
  }
}

template <class M, class O, class Options>
void expect_equal_trainer(const NamedStrategy& named, int64_t examples, int64_t batch, const Options& options) {
  SCOPED_TRACE(c10::str(examples, " examples in batches of ", batch));
  const LabelledImages images = labelled_images(examples);
  const TrainerRun plain = train_by_hand<M, O>(images, batch, options);
  const TrainerRun trained = train_by_trainer<M, O>(named, images, batch, options);
  expect_all_close(trained.parameters, plain.parameters);
  expect_all_close(trained.buffers, plain.buffers);
  ASSERT_EQ(trained.epochs.size(), plain.epochs.size());
  for (size_t epoch = 0; epoch < plain.epochs.size(); ++epoch) {
    ASSERT_EQ(trained.epochs[epoch].size(), plain.epochs[epoch].size());
    for (const auto& [name, value] : plain.epochs[epoch]) {
      EXPECT_NEAR(trained.epochs[epoch].at(name), value, kTrainerTolerance) << name << " of epoch " << epoch;
    }
  }
  ASSERT_EQ(trained.predictions.sizes(), plain.predictions.sizes());
  const bool ordered = !named.has_workers();
  const auto expected = ordered ? plain.predictions : in_any_order(plain.predictions);
  const auto actual = ordered ? trained.predictions : in_any_order(trained.predictions);
  EXPECT_TRUE(torch::allclose(actual, expected, kTrainerTolerance, kTrainerTolerance));
}

const auto kTrainerMomentum = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
const auto kTrainerAdam = torch::optim::AdamOptions(0.01);

class TrainerTest : public ::testing::TestWithParam<NamedStrategy> {};

/// The last batch has 0 to 5 of 6 rows: with several replicas some have none.
TEST_P(TrainerTest, MlpWithEveryRemainder) {
  const bool compiles = GetParam().is_traced();
  for (const int64_t examples : compiles ? std::vector<int64_t>{13} : std::vector<int64_t>{12, 13, 14, 15, 16, 17}) {
    expect_equal_trainer<Mlp, torch::optim::SGD>(GetParam(), examples, 6, kTrainerMomentum);
  }
}
TEST_P(TrainerTest, CnnWithSynchronizedNormalization) {
  expect_equal_trainer<TrainerCnn, torch::optim::Adam>(GetParam(), 13, 6, kTrainerAdam);
  if (!GetParam().is_traced()) {
    expect_equal_trainer<TrainerCnn, torch::optim::SGD>(GetParam(), 15, 4, kTrainerMomentum);
  }
}
TEST_P(TrainerTest, Transformer) {
  expect_equal_trainer<Transformer, torch::optim::Adam>(GetParam(), 13, 6, kTrainerAdam);
}

/// A step of 6 rows by hand: clipped, with a rate of its own, and an average of the parameters.
torch::Tensor predictions_of_average(const LabelledImages& images, const Schedule& rates) {
  torch::manual_seed(3);
  Mlp model;
  torch::optim::SGD sgd(model->parameters(), kTrainerMomentum);
  std::vector<torch::Tensor> averages;
  for (const auto& parameter : model->parameters()) averages.push_back(parameter.detach().clone());
  const auto xs = images.x.split(6);
  const auto ys = images.y.split(6);
  for (size_t i = 0; i < xs.size(); ++i) {
    static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr(rates(static_cast<int64_t>(i)));
    sgd.zero_grad();
    torch::nll_loss(model->forward(xs[i]), ys[i]).backward();
    const torch::NoGradGuard no_grad;
    double squares = 0;
    for (const auto& parameter : model->parameters()) squares += parameter.grad().square().sum().item<double>();
    const double factor = std::min(1.0, 0.5 / (std::sqrt(squares) + 1e-6));
    for (const auto& parameter : model->parameters()) parameter.grad().mul_(factor);
    sgd.step();
    const auto parameters = model->parameters();
    for (size_t p = 0; p < parameters.size(); ++p) averages[p].mul_(0.8).add_(parameters[p], 0.2);
  }
  const torch::NoGradGuard no_grad;
  for (size_t p = 0; p < averages.size(); ++p) model->parameters()[p].copy_(averages[p]);
  return model->forward(images.x);
}

TEST_P(TrainerTest, AccumulationClippingSchedulesAndAverages) {
  const LabelledImages images = labelled_images(15);
  const Schedule rates([](int64_t step) { return 0.2 / static_cast<double>(step + 1); });
  const Strategy strategy = GetParam().make();
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, kTrainerMomentum);
  Trainer trainer(strategy, model, sgd, losses::nll(),
                  {.schedules = {rates}, .accumulate = 2, .clip_norm = 0.5, .ema_decay = 0.8});
  trainer.fit(images.dataset().batch(3), {.verbose = false});
  const auto parameters = model.replica(0).parameters()[0].cpu();
  const auto predicted = trainer.predict(images.dataset().batch(5));
  const auto expected = predictions_of_average(images, rates);
  const bool ordered = !GetParam().has_workers();
  EXPECT_TRUE(torch::allclose(ordered ? predicted : in_any_order(predicted),
                              ordered ? expected : in_any_order(expected), 1e-6, 1e-6));
  EXPECT_TRUE(torch::equal(model.replica(0).parameters()[0].cpu(), parameters)) << "the parameters are back";
}

/// The sum of a number over the lines of a file.
int64_t sum_in_lines(const std::string& path, const std::string& name) {
  const std::string text = lockstep::tests::bytes_of(path);
  const std::string key = "\"" + name + "\":";
  int64_t sum = 0;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    sum += std::stoll(text.substr(at + key.size()));
  }
  return sum;
}

TEST_P(TrainerTest, RunFolders) {
  const LabelledImages images = labelled_images(15);
  const lockstep::tests::TestFolder folder;
  const Strategy strategy = GetParam().make();
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, kTrainerMomentum);
  Trainer trainer(strategy, model, sgd, losses::nll(),
                  {.callbacks = {callbacks::run_folder(folder / "run", {.tensorboard = false, .line_every = 1e-9})}});
  trainer.fit(images.dataset().batch(3), {.epochs = 2, .verbose = false});
  if (!trainer.is_chief()) {
    EXPECT_TRUE(folder.names().empty()) << "one worker writes";
    return;
  }
  EXPECT_EQ(sum_in_lines(folder / "run/steps.jsonl", "examples"), 30);
  EXPECT_EQ(sum_in_lines(folder / "run/steps.jsonl", "steps"), 10);
  EXPECT_EQ(sum_in_lines(folder / "run/metrics.jsonl", "examples"), 30);
  const int64_t replicas = strategy.num_replicas_in_sync();
  EXPECT_EQ(sum_in_lines(folder / "run/steps.jsonl", "replica"), 10 * (replicas * (replicas - 1) / 2))
      << "each line has all replicas";
}

INSTANTIATE_TEST_SUITE_P(Strategies, TrainerTest, ::testing::ValuesIn(all_strategies({{2, 2}})), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
