#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>
#include <torch/data/transforms/tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"
#include "tests/strategy/step_ids.h"

namespace lockstep {
namespace {

using tests::Ids;
using tests::ids_of;
using tests::joined;
using tests::mirrored;
using tests::StepIds;
using torch::data::DataLoaderOptions;
using torch::data::make_data_loader;
using torch::data::TensorExample;
using torch::data::samplers::SequentialSampler;
using torch::data::transforms::Stack;
using TorchExample = torch::data::Example<>;

class TorchLoader : public tests::ReplicasTest {};

/// Example i is ([i, i], i).
struct NumberedExamples : torch::data::datasets::Dataset<NumberedExamples> {
  explicit NumberedExamples(size_t count) : count(count) {}
  TorchExample get(size_t index) override {
    const auto number = static_cast<int64_t>(index);
    return {torch::full({2}, number, torch::kLong), torch::full({}, number, torch::kLong)};
  }
  torch::optional<size_t> size() const override { return count; }

  size_t count;
};

auto in_order(size_t count, size_t batch_size) {
  return make_data_loader<SequentialSampler>(NumberedExamples(count).map(Stack<>()), DataLoaderOptions(batch_size));
}

StepIds targets_of(const DistributedDataset<TorchExample>& dataset) {
  StepIds steps;
  for (const auto& batch : dataset) steps.push_back(ids_of(batch.target));
  return steps;
}

Ids all_targets(const DistributedDataset<TorchExample>& dataset) {
  Ids all;
  for (const auto& step : targets_of(dataset)) {
    const Ids ids = joined(step);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

TEST_F(TorchLoader, ItsBatchesAreDivided) {
  auto loader = in_order(10, 4);
  const auto strategy = mirrored(2);
  const StepIds expected{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {9}}};
  EXPECT_EQ(targets_of(strategy.distribute_dataset(loader)), expected);
  EXPECT_EQ(targets_of(strategy.distribute_dataset(*loader)), expected);
  EXPECT_EQ(targets_of(strategy.experimental_distribute_dataset(in_order(10, 4))), expected);
  const auto owned = strategy.distribute_dataset(std::move(loader));
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(targets_of(owned), expected);
  EXPECT_EQ(targets_of(mirrored(3).distribute_dataset(in_order(5, 3))), (StepIds{{{0}, {1}, {2}}, {{3}, {4}, {}}}));
  EXPECT_EQ(targets_of(mirrored(1).distribute_dataset(in_order(3, 2))), (StepIds{{{0, 1}}, {{2}}}));
}

TEST_F(TorchLoader, MappedDatasetsAreDivided) {
  auto mapped = NumberedExamples(10).map(Stack<>());
  const auto strategy = mirrored(2);
  EXPECT_EQ(targets_of(strategy.distribute_dataset(mapped, {.batch_size = 4})),
            (StepIds{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {9}}}));
  EXPECT_EQ(targets_of(strategy.distribute_dataset(NumberedExamples(2), {.batch_size = 2})), (StepIds{{{0}, {1}}}));
  EXPECT_EQ(targets_of(strategy.distribute_dataset(mapped, {.batch_size = 9}, {.empty = EmptyBatch::Drop})),
            (StepIds{{{0, 1, 2, 3, 4}, {5, 6, 7, 8}}}));
  EXPECT_THROW(strategy.distribute_dataset(mapped), c10::ValueError);
}

TEST_F(TorchLoader, ReplicasGetExamples) {
  const auto strategy = mirrored(3);
  int64_t total = 0;
  for (const auto& batch : strategy.distribute_dataset(in_order(8, 5))) {
    const auto sums = strategy.run(
        [](const TorchExample& part) {
          EXPECT_EQ(part.data.size(0), part.target.size(0));
          return part.target.sum();
        },
        batch);
    total += strategy.reduce("sum", sums).item<int64_t>();
  }
  EXPECT_EQ(total, 28);
  total = 0;
  const torch::data::datasets::TensorDataset tensors(torch::arange(8));
  for (const auto& batch : strategy.distribute_dataset(tensors, {.batch_size = 5})) {
    const auto sums = strategy.run([](const TensorExample& part) { return part.data.sum(); }, batch);
    total += strategy.reduce("sum", sums).item<int64_t>();
  }
  EXPECT_EQ(total, 28);
}

TEST_F(TorchLoader, EveryEpochHasItsOwnRandomOrder) {
  const auto strategy = mirrored(2);
  auto loader = make_data_loader(NumberedExamples(40).map(Stack<>()), DataLoaderOptions(8));
  std::set<Ids> orders;
  const auto owned = strategy.distribute_dataset(loader);
  for (int epoch = 0; epoch < 3; ++epoch) orders.insert(all_targets(owned));
  // Also where the program distributes the loader anew for every epoch.
  for (int epoch = 0; epoch < 3; ++epoch) orders.insert(all_targets(strategy.distribute_dataset(*loader)));
  for (int epoch = 0; epoch < 3; ++epoch) {
    orders.insert(all_targets(strategy.distribute_dataset(NumberedExamples(40), {.batch_size = 8, .shuffle = true})));
  }
  EXPECT_EQ(orders.size(), 9u);
  for (const Ids& order : orders) EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 40u);
}

TEST_F(TorchLoader, OrdersAreTheSameAgainAfterTheSameSeed) {
  const auto orders = [](int replicas) {
    torch::manual_seed(11);
    const auto strategy = mirrored(replicas);
    auto loader = make_data_loader(NumberedExamples(30).map(Stack<>()), DataLoaderOptions(6));
    std::vector<Ids> all;
    for (int epoch = 0; epoch < 2; ++epoch) all.push_back(all_targets(strategy.distribute_dataset(loader)));
    const auto shuffled = strategy.distribute_dataset(NumberedExamples(30), {.batch_size = 6, .shuffle = true});
    for (int epoch = 0; epoch < 2; ++epoch) all.push_back(all_targets(shuffled));
    return all;
  };
  const auto expected = orders(1);
  for (int replicas = 1; replicas <= 3; ++replicas) EXPECT_EQ(orders(replicas), expected) << replicas;
}

TEST_F(TorchLoader, GoesOnFromAPosition) {
  const auto strategy = mirrored(2);
  const auto dataset =
      strategy.distribute_dataset(make_data_loader(NumberedExamples(20).map(Stack<>()), DataLoaderOptions(4)));
  auto first = dataset.iterator();
  first.get_next();
  const auto saved = first.position();
  const auto expected = ids_of(first.get_next().target);
  auto second = dataset.iterator();
  second.restore(saved);
  EXPECT_EQ(ids_of(second.get_next().target), expected);
  EXPECT_THROW(first.get_next(), c10::ValueError) << "one iterator at a time";
}

TEST_F(TorchLoader, TheDocumentedProgramTrainsAsOnOneDevice) {
  const auto train = [](int replicas) {
    torch::manual_seed(5);
    const auto strategy = mirrored(replicas);
    auto dataset = torch::data::datasets::TensorDataset(torch::arange(20).view({10, 2}).to(torch::kFloat))
                       .map(torch::data::transforms::TensorLambda<torch::data::example::NoTarget>(
                           [](torch::Tensor x) { return x / 20; }))
                       .map(Stack<TensorExample>());
    auto loader = make_data_loader<SequentialSampler>(dataset, DataLoaderOptions().batch_size(4).workers(2));
    auto scope = strategy.scope();
    auto model = module<torch::nn::Linear>(2, 1);
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    const auto input = strategy.distribute_dataset(std::move(loader));
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const auto& batch : input) {
        strategy.run(
            [&](const TensorExample& part) { sgd.minimize(average_loss(model(part.data).square().flatten())); }, batch);
      }
    }
    return model->weight.detach().clone();
  };
  const at::Tensor expected = train(1);
  for (int replicas = 2; replicas <= 3; ++replicas) {
    EXPECT_TRUE(torch::allclose(train(replicas), expected, 1e-5, 1e-6)) << replicas << " replicas";
  }
}

/// The message of the error that `call` throws.
template <class Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST_F(TorchLoader, AWholeBatchIsNotGivenToRun) {
  const auto strategy = mirrored(2);
  const TorchExample batch{torch::ones({4, 2}), torch::ones({4})};
  const std::vector<TorchExample> list{batch};
  struct Holder {
    TorchExample batch;
    int64_t epoch;
  };
  const auto step = [](const auto&...) {};
  const auto expect_refused = [&](const auto&... args) {
    const std::string message = refusal_of([&] { strategy.run(step, args...); });
    EXPECT_NE(message.find("distribute_dataset"), std::string::npos) << message;
    const std::string pure = refusal_of([&] { strategy.pure(step)(args...); });
    EXPECT_NE(pure.find("distribute_dataset"), std::string::npos) << pure;
  };
  expect_refused(batch);
  expect_refused(list);
  expect_refused(torch::ones({1}), batch);
  expect_refused(std::tuple{batch, 3});
  expect_refused(std::pair{1, batch});
  expect_refused(std::optional(batch));
  expect_refused(std::map<std::string, TorchExample>{{"a", batch}});
  expect_refused(TensorExample(torch::ones({4})));
  expect_refused(Holder{batch, 1});
  strategy.run(step, batch.data, batch.target);
  mirrored(1).run(step, batch);
  OneDeviceStrategy("CPU:0").run(step, list);
  // One for each replica is no mistake.
  strategy.run(step, PerReplica<TorchExample>({batch, batch}));
}

TEST_F(TorchLoader, RunOutsideOfAnyStrategyTakesAWholeBatch) {
  const TorchExample batch{torch::ones({4, 2}), torch::ones({4})};
  const auto sum = get_strategy().run([](const TorchExample& each) { return each.data.sum(); }, batch);
  EXPECT_EQ(sum[0].item<double>(), 8);
}

}  // namespace
}  // namespace lockstep
