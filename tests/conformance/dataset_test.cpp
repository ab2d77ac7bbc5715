#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/distributed.h>
#include <torch/data/transforms/stack.h>
#include <torch/utils.h>

#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

/// Distributed datasets under every strategy, with every size of the last batch.
class DatasetTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  const NamedStrategy& named = GetParam();
  Strategy strategy = named.make();
};

data::Dataset<std::tuple<at::Tensor, at::Tensor>> examples(int64_t count) {
  const auto x = torch::arange(count * 3, torch::kFloat).view({count, 3}) / 10;
  const auto y = torch::arange(count, torch::kFloat);
  return data::from_tensor_slices(std::tuple{x, y});
}

TEST_P(DatasetTest, DeliversEveryElementOnceOnItsDevice) {
  for (const int64_t count : {0, 1, 5, 8, 13}) {
    std::vector<double> seen;
    int64_t steps = 0;
    for (const auto& batch : strategy.distribute_dataset(examples(count).shuffle(8).batch(4))) {
      strategy.run(
          [&](const at::Tensor& x, const at::Tensor& y) {
            EXPECT_TRUE(named.is_on_device(x)) << x.device();
            EXPECT_EQ(x.size(0), y.size(0));
            EXPECT_EQ(x.size(1), 3);
          },
          batch);
      const auto [x, y] = batch;
      const at::Tensor all = all_rows(named, strategy, y);
      for (int64_t i = 0; i < all.numel(); ++i) seen.push_back(all[i].item<double>());
      ++steps;
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(steps, (count + 3) / 4);
    ASSERT_EQ(seen.size(), static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(seen[i], i);
  }
}

TEST_P(DatasetTest, TrainingEqualsThatOnOneDeviceForEveryRemainder) {
  for (int64_t count = 5; count <= 9; ++count) {
    const auto initial = torch::tensor({{0.1, -0.2, 0.3}});
    auto plain = initial.clone().requires_grad_();
    for (auto& [x, y] : examples(count).batch(4)) {
      const auto loss = (x.mm(plain.t()).squeeze(1) - y).square().sum() / 4;
      plain.mutable_grad().reset();
      loss.backward();
      const torch::NoGradGuard no_grad;
      plain -= plain.grad() * 0.01;
    }
    auto scope = strategy.scope();
    Variable weight(initial.to(named.device), {.name = "w"});
    auto sgd = optimizer<torch::optim::SGD>(std::vector<Variable>{weight}, 0.01);
    for (const auto& batch : strategy.distribute_dataset(examples(count).batch(4))) {
      strategy.run(
          [&](const at::Tensor& x, const at::Tensor& y) {
            sgd.minimize(average_loss((x.mm(weight.value().t()).squeeze(1) - y).square(), 4));
          },
          batch);
    }
    EXPECT_TRUE(torch::allclose(weight.read_value().cpu(), plain, 1e-5, 1e-6)) << count << " examples";
  }
}

// What a step writes to its batch must not be in the batch of the next epoch.
TEST_P(DatasetTest, StepsMayWriteToTheirBatches) {
  const at::Tensor table = torch::arange(24, torch::kFloat).view({8, 3});
  const std::vector<data::Dataset<at::Tensor>> datasets{
      data::from_tensor_slices(table).batch(4),
      data::from_tensor_slices(table).batch(4).cache(),
      data::from_tensor_slices(table.view({2, 4, 3})),
      data::from_vector(std::vector<at::Tensor>{table, table * 2}),
      data::range(2).map([table](int64_t) { return table; }),
      data::range(2).map([table](int64_t i) { return table.narrow(0, 4 * i, 4); })};
  for (const auto& dataset : datasets) {
    std::vector<at::Tensor> epochs;
    const auto input = strategy.distribute_dataset(dataset);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<at::Tensor> rows;
      for (const auto& batch : input) {
        rows.push_back(all_rows(named, strategy, batch).cpu().clone());
        strategy.run([](const at::Tensor& x) { x.fill_(-1); }, batch);
      }
      epochs.push_back(torch::cat(rows));
    }
    EXPECT_TRUE(torch::equal(epochs[0], epochs[1])) << dataset.str();
    EXPECT_EQ(epochs[1].min().item<float>(), 0) << dataset.str();
  }
  EXPECT_TRUE(torch::equal(table, torch::arange(24, torch::kFloat).view({8, 3})));
}

TEST_P(DatasetTest, GoesOnFromAPosition) {
  const auto input = strategy.distribute_dataset(examples(23).shuffle(10, {.seed = 3}).batch(4));
  auto first = input.iterator();
  first.get_next();
  first.get_next();
  const std::string saved = first.position().str();
  auto second = input.iterator();
  second.restore(InputPosition::parse(saved));
  while (auto expected = first.get_next_as_optional()) {
    const auto [x, y] = *expected;
    const auto [x2, y2] = second.get_next();
    EXPECT_TRUE(torch::equal(all_rows(named, strategy, x), all_rows(named, strategy, x2)));
    EXPECT_TRUE(torch::equal(all_rows(named, strategy, y), all_rows(named, strategy, y2)));
  }
  EXPECT_THROW(second.get_next(), EndOfData);
}

TEST_P(DatasetTest, ADatasetDistributedAnewForEveryEpochHasAnotherOrder) {
  const auto train = examples(13).shuffle(13);
  if (named.first > 0) train.collect();  // a worker that has read by itself follows the epochs of the first one
  std::set<std::vector<double>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<double> seen;
    for (const auto& batch : strategy.distribute_dataset(train.batch(4))) {
      const at::Tensor all = all_rows(named, strategy, std::get<1>(batch));
      for (int64_t i = 0; i < all.numel(); ++i) seen.push_back(all[i].item<double>());
    }
    orders.insert(seen);
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen.size(), 13u);
    for (int64_t i = 0; i < 13; ++i) EXPECT_EQ(seen[i], i);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST_P(DatasetTest, APositionOfAnotherSeedIsRefused) {
  const auto input = strategy.distribute_dataset(examples(23).shuffle(10).batch(4));
  torch::manual_seed(7);
  auto first = input.iterator();
  first.get_next();
  const InputPosition saved = InputPosition::parse(first.position().str());
  torch::manual_seed(8);
  auto second = input.iterator();
  EXPECT_THROW(second.restore(saved), c10::ValueError);
  torch::manual_seed(7);
  second.restore(saved);
  while (auto expected = first.get_next_as_optional()) {
    const auto y = std::get<1>(second.get_next());
    EXPECT_TRUE(torch::equal(all_rows(named, strategy, y), all_rows(named, strategy, std::get<1>(*expected))));
  }
  torch::manual_seed(1);
}

TEST_P(DatasetTest, StaysOnTheHostWhereAsked) {
  for (const auto& batch : strategy.distribute_dataset(examples(4).batch(4), {.fetch_to_device = false})) {
    for (const auto& rows : strategy.local_results(std::get<0>(batch))) EXPECT_TRUE(rows.is_cpu());
    // `run` moves its arguments.
    strategy.run([&](const at::Tensor& x, const at::Tensor&) { EXPECT_TRUE(named.is_on_device(x)); }, batch);
  }
}

/// Example i is ([i, i], i).
struct LoadedExamples : torch::data::datasets::Dataset<LoadedExamples> {
  explicit LoadedExamples(int64_t count) : count(count) {}
  torch::data::Example<> get(size_t index) override {
    return {torch::full({2}, static_cast<double>(index)), torch::full({}, static_cast<double>(index))};
  }
  torch::optional<size_t> size() const override { return count; }

  int64_t count;
};

/// The rows of one epoch, of all replicas.
template <class Dataset>
std::vector<double> rows_of_epoch(const NamedStrategy& named, const Strategy& strategy, const Dataset& dataset) {
  std::vector<double> seen;
  for (const auto& batch : dataset) {
    strategy.run(
        [&](const torch::data::Example<>& part) {
          EXPECT_TRUE(named.is_on_device(part.data)) << part.data.device();
          EXPECT_EQ(part.data.size(0), part.target.size(0));
        },
        batch);
    const at::Tensor all = all_rows(named, strategy, batch.target);
    for (int64_t i = 0; i < all.numel(); ++i) seen.push_back(all[i].item<double>());
  }
  return seen;
}

std::vector<double> numbers_below(int64_t count) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<double>(i));
  return numbers;
}

TEST_P(DatasetTest, DividesTheBatchesOfALoader) {
  torch::manual_seed(named.first + 1);  // another one on every worker
  const auto mapped = [] { return LoadedExamples(13).map(torch::data::transforms::Stack<>()); };
  const auto loaded = strategy.distribute_dataset(torch::data::make_data_loader(mapped(), 4));
  const auto batched = strategy.distribute_dataset(mapped(), {.batch_size = 4, .shuffle = true});
  std::set<std::vector<double>> orders;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto* input : {&loaded, &batched}) {
      std::vector<double> seen = rows_of_epoch(named, strategy, *input);
      orders.insert(seen);
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, numbers_below(13));
    }
  }
  EXPECT_EQ(orders.size(), 4u);
  torch::manual_seed(1);
}

TEST_P(DatasetTest, LeavesTheExamplesOfADistributedSamplerToTheirWorker) {
  const int workers = named.replicas / named.local;
  const torch::data::samplers::DistributedRandomSampler sampler(12, workers, named.first / named.local);
  auto loader = torch::data::make_data_loader(LoadedExamples(12), sampler, torch::data::DataLoaderOptions(12));
  std::vector<double> seen = rows_of_epoch(named, strategy, strategy.distribute_dataset(*loader));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, numbers_below(12));
}

TEST_P(DatasetTest, RepeatsOrDropsBatchesOfReplicasWithoutRows) {
  const int64_t batch_size = 2 * named.replicas;
  for (int64_t rest = 0; rest < batch_size; ++rest) {
    const int64_t count = batch_size + rest;
    const int64_t part = (rest + named.replicas - 1) / named.replicas;
    const bool is_complete = rest > 0 && (named.replicas - 1) * part < rest;
    for (const EmptyBatch empty : {EmptyBatch::Repeat, EmptyBatch::Drop}) {
      const auto input = strategy.distribute_dataset(examples(count).batch(batch_size), {.empty = empty});
      std::vector<double> seen;
      int64_t steps = 0;
      for (const auto& batch : input) {
        strategy.run([&](const at::Tensor& x, const at::Tensor&) { EXPECT_GT(x.size(0), 0); }, batch);
        const at::Tensor all = all_rows(named, strategy, std::get<1>(batch));
        for (int64_t i = 0; i < all.numel(); ++i) seen.push_back(all[i].item<double>());
        ++steps;
      }
      const bool has_rest = empty == EmptyBatch::Repeat ? rest > 0 : is_complete;
      EXPECT_EQ(steps, has_rest ? 2 : 1) << count << " rows";
      const std::set<double> distinct(seen.begin(), seen.end());
      EXPECT_EQ(distinct.size(), static_cast<size_t>(has_rest ? count : batch_size));
      EXPECT_EQ(seen.size() == distinct.size(), empty == EmptyBatch::Drop || rest == 0 || is_complete);
    }
  }
}

TEST_P(DatasetTest, RepeatsOrDropsWhereWorkersHaveDifferentNumbersOfBatches) {
  constexpr int64_t kFewest = 8;
  // Slow enough that batches are prefetched on a thread.
  const auto slowly = [](int64_t i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return i;
  };
  const auto dataset_fn = [&](const InputContext& context) {
    return data::range((kFewest + 2 * context.input_pipeline_id) * named.local).map(slowly).batch(1);
  };
  const int64_t most = kFewest + 2 * (named.replicas / named.local - 1);
  for (const EmptyBatch empty : {EmptyBatch::Keep, EmptyBatch::Repeat, EmptyBatch::Drop}) {
    int64_t steps = 0;
    for (const auto& batch : strategy.distribute_datasets_from_function(dataset_fn, {.empty = empty})) {
      strategy.run(
          [&](const at::Tensor& x) {
            if (empty != EmptyBatch::Keep) {
              EXPECT_EQ(x.size(0), 1);
            }
          },
          batch);
      ++steps;
    }
    EXPECT_EQ(steps, empty == EmptyBatch::Drop ? kFewest : most);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, DatasetTest, ::testing::ValuesIn(all_strategies()), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
