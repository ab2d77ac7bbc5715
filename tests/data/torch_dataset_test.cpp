#include "lockstep/data/torch_dataset.h"

#include <set>
#include <stdexcept>

#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/stateful.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/samplers/distributed.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>
#include <torch/data/transforms/tensor.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using torch::data::DataLoaderOptions;
using torch::data::Example;
using torch::data::make_data_loader;
using torch::data::TensorExample;
using torch::data::samplers::SequentialSampler;
using torch::data::transforms::Stack;
using Rows = std::vector<int64_t>;

/// Example i is ([i, i], i), in floats.
struct Numbers : torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(size_t count, int64_t broken = -1) : count(count), broken(broken) {}
  Example<> get(size_t index) override {
    if (static_cast<int64_t>(index) == broken) throw std::runtime_error("a broken example");
    const auto value = static_cast<double>(index);
    return {torch::full({2}, value), torch::full({}, value)};
  }
  torch::optional<size_t> size() const override { return count; }

  size_t count;
  int64_t broken;
};

Rows rows_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape({-1}).to(at::kLong).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

/// The targets of each batch of an epoch.
std::vector<Rows> targets_of(const Dataset<Example<>>& dataset) {
  std::vector<Rows> batches;
  for (const Example<>& batch : dataset) batches.push_back(rows_of(batch.target));
  return batches;
}

Rows joined(const std::vector<Rows>& batches) {
  Rows all;
  for (const Rows& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

auto sequential(size_t count, int64_t batch_size, size_t threads = 0) {
  return make_data_loader<SequentialSampler>(Numbers(count).map(Stack<>()),
                                             DataLoaderOptions().batch_size(batch_size).workers(threads));
}

TEST(TorchDatasetTest, EveryIterationRestartsTheLoader) {
  for (const size_t threads : {0, 2}) {
    const auto dataset = from_torch(sequential(7, 3, threads));
    static_assert(std::is_same_v<decltype(dataset)::value_type, Example<>>);
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(targets_of(dataset), (std::vector<Rows>{{0, 1, 2}, {3, 4, 5}, {6}})) << threads;
    }
    EXPECT_TRUE(dataset.cardinality().is_unknown());
  }
}

TEST(TorchDatasetTest, AnIterationMayEndEarly) {
  for (const size_t threads : {0, 2}) {
    const auto dataset = from_torch(sequential(100, 3, threads));
    for (int epoch = 0; epoch < 3; ++epoch) {
      auto iterator = dataset.iterator();
      EXPECT_EQ(rows_of(iterator.next()->target), (Rows{0, 1, 2}));
      EXPECT_EQ(rows_of(iterator.next()->target), (Rows{3, 4, 5}));
    }
  }
}

TEST(TorchDatasetTest, ALoaderIsMovedOrStaysWithTheUser) {
  auto loader = sequential(4, 2);
  const std::vector<Rows> expected{{0, 1}, {2, 3}};
  EXPECT_EQ(targets_of(from_torch(loader)), expected);
  EXPECT_EQ(targets_of(from_torch(*loader)), expected);
  int64_t batches = 0;
  for (const auto& batch : *loader) batches += batch.data.size(0) > 0 ? 1 : 0;
  EXPECT_EQ(batches, 2) << "the loader can be used as before";
  const auto moved = from_torch(std::move(loader));
  EXPECT_EQ(targets_of(moved), expected);
  EXPECT_THROW(from_torch(loader), c10::ValueError);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(from_torch(std::move(loader)), c10::ValueError);
  EXPECT_EQ(targets_of(from_torch(std::shared_ptr(sequential(4, 2)))), expected);
}

TEST(TorchDatasetTest, OneIteratorAtATimeReadsALoader) {
  auto loader = sequential(6, 2);
  const auto first_dataset = from_torch(loader);
  const auto second_dataset = from_torch(*loader);
  auto first = first_dataset.iterator();
  auto second = second_dataset.iterator();
  first.next();
  EXPECT_EQ(rows_of(first.next()->target), (Rows{2, 3})) << "the second one has not started";
  EXPECT_EQ(rows_of(second.next()->target), (Rows{0, 1}));
  EXPECT_THROW(first.next(), c10::ValueError);
  EXPECT_EQ(rows_of(second.next()->target), (Rows{2, 3}));
}

TEST(TorchDatasetTest, RandomOrdersFollowTheSeedAndTheEpoch) {
  const auto make = [] { return from_torch(make_data_loader(Numbers(40).map(Stack<>()), DataLoaderOptions(8))); };
  torch::manual_seed(3);
  const auto dataset = make();
  const Rows first = joined(targets_of(dataset));
  const Rows second = joined(targets_of(dataset));
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 40u);
  torch::rand({7});
  const auto again = make();
  EXPECT_EQ(joined(targets_of(again)), first) << "numbers that others draw do not matter";
  torch::manual_seed(4);
  EXPECT_NE(joined(targets_of(make())), first);
  torch::manual_seed(3);
  auto iterator = again.iterator_of_epoch(1);
  iterator.next();
  auto restored = make().iterator();
  restored.restore(iterator.position());
  EXPECT_EQ(rows_of(restored.next()->target), Rows(second.begin() + 8, second.begin() + 16));
}

TEST(TorchDatasetTest, ListsOfExamplesAreStacked) {
  const auto dataset = from_torch(make_data_loader<SequentialSampler>(Numbers(5), DataLoaderOptions(2)));
  static_assert(std::is_same_v<decltype(dataset)::value_type, Example<>>);
  const auto batches = dataset.collect();
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].data.sizes(), at::IntArrayRef({2, 2}));
  EXPECT_EQ(rows_of(batches[2].target), (Rows{4}));
}

struct Ragged : torch::data::datasets::Dataset<Ragged> {
  Example<> get(size_t index) override { return {torch::zeros({static_cast<int64_t>(index)}), torch::zeros({})}; }
  torch::optional<size_t> size() const override { return 3; }
};

TEST(TorchDatasetTest, ListsThatCannotBeStackedAreRefused) {
  const auto dataset = from_torch(make_data_loader<SequentialSampler>(Ragged(), DataLoaderOptions(2)));
  try {
    dataset.collect();
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("Collate"), std::string::npos) << error.what();
  }
}

/// Counts to nine, and starts again after `reset`.
struct Counter : torch::data::datasets::StatefulDataset<Counter, std::vector<Example<>>, size_t> {
  torch::optional<std::vector<Example<>>> get_batch(size_t count) override {
    std::vector<Example<>> batch;
    for (; batch.size() < count && next < 9; ++next) batch.emplace_back(torch::zeros({2}), torch::full({}, next));
    if (batch.empty()) return torch::nullopt;
    return batch;
  }
  torch::optional<size_t> size() const override { return torch::nullopt; }
  void reset() override { next = 0; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

  int64_t next = 0;
};

TEST(TorchDatasetTest, StatefulDatasetsAreReadByLoaders) {
  const auto dataset = from_torch(make_data_loader(Counter(), DataLoaderOptions(4)));
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(targets_of(dataset), (std::vector<Rows>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8}}));
  }
  auto early = dataset.iterator();
  early.next();
  EXPECT_EQ(joined(targets_of(dataset)).size(), 9u);
}

TEST(TorchDatasetTest, ExamplesWithoutATarget) {
  const auto tensors = torch::data::datasets::TensorDataset(torch::arange(10).view({5, 2}));
  const auto plain = from_torch(make_data_loader<SequentialSampler>(tensors, DataLoaderOptions(2)));
  static_assert(std::is_same_v<decltype(plain)::value_type, TensorExample>);
  EXPECT_EQ(rows_of(plain.collect()[1].data), (Rows{4, 5, 6, 7}));
  auto stacked = torch::data::datasets::TensorDataset(torch::arange(10).view({5, 2})).map(Stack<TensorExample>());
  EXPECT_EQ(rows_of(from_torch(stacked, {.batch_size = 4}).collect()[1].data), (Rows{8, 9}));
  EXPECT_EQ(plain.unbatch().collect().size(), 5u);
}

TEST(TorchDatasetTest, ErrorsOfExamplesAreThrownAndTheRestIsRead) {
  for (const size_t threads : {0, 1}) {
    const auto dataset = from_torch(make_data_loader<SequentialSampler>(
        Numbers(6, 2).map(Stack<>()), DataLoaderOptions().batch_size(2).workers(threads)));
    auto iterator = dataset.iterator();
    EXPECT_EQ(rows_of(iterator.next()->target), (Rows{0, 1}));
    EXPECT_ANY_THROW(iterator.next());
    EXPECT_EQ(rows_of(iterator.next()->target), (Rows{4, 5}));
    EXPECT_FALSE(iterator.next().has_value());
  }
}

TEST(TorchDatasetTest, TransformsContinueFromALoader) {
  const auto sums =
      from_torch(sequential(5, 2)).map([](const Example<>& batch) { return batch.target.sum().item<double>(); });
  EXPECT_EQ(sums.collect(), (std::vector<double>{1, 5, 4}));
}

TEST(TorchDatasetTest, MappedDatasetsAreBatched) {
  auto mapped = Numbers(7).map(torch::data::transforms::Normalize<>(1.0, 2.0)).map(Stack<>());
  const auto dataset = from_torch(mapped, {.batch_size = 3});
  EXPECT_EQ(targets_of(dataset), (std::vector<Rows>{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_EQ(dataset.cardinality(), Cardinality::exactly(3));
  EXPECT_TRUE(at::allclose(dataset.collect()[2].data, torch::full({1, 2}, 2.5)));
  EXPECT_EQ(from_torch(mapped, {.batch_size = 3, .drop_remainder = true}).collect().size(), 2u);
  EXPECT_EQ(targets_of(from_torch(Numbers(3), {.batch_size = 2})), (std::vector<Rows>{{0, 1}, {2}}));
  EXPECT_EQ(from_torch(Numbers(0), {.batch_size = 2, .shuffle = true}).collect().size(), 0u);
  EXPECT_THROW(from_torch(mapped, {}), c10::ValueError) << "the size of batches must be given";
}

TEST(TorchDatasetTest, MappedDatasetsAreShuffledInEveryEpoch) {
  for (const int threads : {1, 2}) {
    const auto dataset =
        from_torch(Numbers(30).map(Stack<>()), {.batch_size = 4, .shuffle = true, .seed = 7, .num_threads = threads});
    const Rows first = joined(targets_of(dataset));
    const Rows second = joined(targets_of(dataset));
    EXPECT_NE(first, second);
    EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 30u);
    tests::expect_well_behaved(dataset.map([](const Example<>& batch) { return batch.target; }));
  }
}

TEST(TorchDatasetTest, WorkersShareALoaderUnlessItsSamplerDividesTheData) {
  EXPECT_EQ(detail::options_of(*detail::node_of(from_torch(sequential(4, 2)))).auto_shard_policy,
            AutoShardPolicy::Data);
  const auto divided = from_torch(make_data_loader(
      Numbers(8).map(Stack<>()), torch::data::samplers::DistributedSequentialSampler(8, 2, 1), DataLoaderOptions(2)));
  EXPECT_EQ(detail::options_of(*detail::node_of(divided)).auto_shard_policy, AutoShardPolicy::Off);
  EXPECT_EQ(joined(targets_of(divided)), (Rows{4, 5, 6, 7}));
}

}  // namespace
}  // namespace lockstep::data
