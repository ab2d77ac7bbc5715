#include <atomic>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"
#include "tests/strategy/step_ids.h"

namespace lockstep {
namespace {

using data::AutoShardPolicy;
using tests::Ids;
using tests::ids_of;
using tests::joined;
using tests::joined_steps;
using tests::mirrored;
using tests::StepIds;
using tests::steps_of;
class DistributeDataset : public tests::ReplicasTest {};

TEST_F(DistributeDataset, DividesBatchesAndTheRemainder) {
  const auto dataset = mirrored(2).distribute_dataset(data::range(10).batch(4));
  EXPECT_EQ(steps_of(dataset), (StepIds{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {9}}}));
  EXPECT_EQ(dataset.cardinality(), data::Cardinality::exactly(3));
}

TEST_F(DistributeDataset, OneReplicaGetsTheBatchItself) {
  const OneDeviceStrategy strategy("CPU:0");
  for (const at::Tensor& batch : strategy.distribute_dataset(data::range(4).batch(4))) {
    EXPECT_EQ(ids_of(batch), (Ids{0, 1, 2, 3}));
  }
}

TEST_F(DistributeDataset, TuplesAreTuplesOfDistributedValues) {
  const auto strategy = mirrored(3);
  const auto pairs = data::from_tensor_slices(std::tuple{at::arange(7), at::arange(7) * 10}).batch(3);
  int64_t total = 0;
  for (const auto& [x, y] : strategy.distribute_dataset(pairs)) {
    const auto step = [](const at::Tensor& a, const at::Tensor& b) { return (b - a * 9).sum(); };
    total += strategy.reduce("sum", strategy.run(step, x, y)).item<int64_t>();
    EXPECT_EQ(x.size(), 3u);
  }
  EXPECT_EQ(total, 21);
}

TEST_F(DistributeDataset, TupleIsSpreadOverArgumentsOfTheStep) {
  const auto strategy = mirrored(2);
  const auto pairs = data::range(4).map([](int64_t i) { return std::tuple{i, 2 * i}; }).batch(2);
  int64_t total = 0;
  for (const auto& batch : strategy.distribute_dataset(pairs)) {
    total += strategy.reduce("sum", strategy.run([](at::Tensor x, at::Tensor y) { return (x + y).sum(); }, batch))
                 .item<int64_t>();
  }
  EXPECT_EQ(total, 18);
}

struct Sample {
  at::Tensor image;
  at::Tensor label;
};

TEST_F(DistributeDataset, StructsStayStructs) {
  const auto strategy = mirrored(2);
  const auto samples = data::range(5)
                           .map([](int64_t i) {
                             return Sample{at::full({2}, i), at::scalar_tensor(i, at::kLong)};
                           })
                           .batch(4);
  int64_t labels = 0;
  int64_t pixels = 0;
  for (const auto& batch : strategy.distribute_dataset(samples)) {
    const auto sums = strategy.run(
        [](const Sample& sample) {
          return std::pair{sample.image.sum(), sample.label.sum()};
        },
        batch);
    pixels += strategy.reduce("sum", sums.first).item<int64_t>();
    labels += strategy.reduce("sum", sums.second).item<int64_t>();
  }
  EXPECT_EQ(labels, 10);
  EXPECT_EQ(pixels, 20);
}

TEST_F(DistributeDataset, MapsKeepTheirKeys) {
  const auto strategy = mirrored(2);
  const auto named = data::range(3)
                         .map([](int64_t i) {
                           return std::map<std::string, int64_t>{{"a", i}, {"b", -i}};
                         })
                         .batch(2);
  std::vector<Ids> seen;
  for (const auto& batch : strategy.distribute_dataset(named)) seen.push_back(joined(ids_of(batch.at("b"))));
  EXPECT_EQ(seen, (std::vector<Ids>{{0, -1}, {-2}}));
}

TEST_F(DistributeDataset, TextsAreDividedLikeTensors) {
  const auto texts = data::from_vector(std::vector<std::string>{"a", "b", "c"}).batch(2);
  std::vector<size_t> sizes;
  for (const auto& batch : mirrored(2).distribute_dataset(texts)) {
    for (const auto& part : batch) sizes.push_back(part.size());
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 1, 1, 0}));
}

TEST_F(DistributeDataset, EveryLoopIsAnotherEpoch) {
  const auto dataset = mirrored(2).distribute_dataset(data::range(100).shuffle(100, {.seed = 1}).batch(10));
  const StepIds first = steps_of(dataset);
  const StepIds second = steps_of(dataset);
  EXPECT_NE(first, second);
  std::set<int64_t> ids;
  for (const Ids& step : joined_steps(second)) ids.insert(step.begin(), step.end());
  EXPECT_EQ(ids.size(), 100u);
}

TEST_F(DistributeDataset, GetNextThrowsAtTheEnd) {
  auto iterator = mirrored(2).distribute_dataset(data::range(2).batch(2)).iterator();
  EXPECT_EQ(ids_of(iterator.get_next()), (std::vector<Ids>{{0}, {1}}));
  EXPECT_THROW(iterator.get_next(), EndOfData);
  EXPECT_THROW(iterator.get_next(), EndOfData) << "again and again";
  EXPECT_FALSE(iterator.get_next_as_optional().has_value());
  iterator.initialize();
  EXPECT_EQ(ids_of(iterator.get_next()), (std::vector<Ids>{{0}, {1}}));
}

TEST_F(DistributeDataset, GetNextBelongsOutsideOfReplicas) {
  const auto strategy = mirrored(2);
  auto iterator = strategy.distribute_dataset(data::range(8).batch(2)).iterator();
  EXPECT_THROW(strategy.run([&] { iterator.get_next(); }), c10::ValueError);
  EXPECT_EQ(ids_of(iterator.get_next()), (std::vector<Ids>{{0}, {1}})) << "nothing was taken";
  strategy.run([&] {
    get_replica_context().merge_call([&](const Strategy&) {
      EXPECT_EQ(ids_of(iterator.get_next()), (std::vector<Ids>{{2}, {3}}));
    });
  });
  const auto other = mirrored(1);
  auto scope = other.scope();
  EXPECT_THROW(iterator.get_next(), ContextError);
}

TEST_F(DistributeDataset, UnbatchedDatasetsAreRefused) {
  const auto dataset = data::range(4);
  EXPECT_THROW(mirrored(2).distribute_dataset(dataset), c10::ValueError);
  int64_t sum = 0;
  for (const int64_t x : mirrored(1).distribute_dataset(dataset)) sum += x;
  EXPECT_EQ(sum, 6) << "one replica needs no batch";
}

TEST_F(DistributeDataset, OptionsAreChecked) {
  const auto strategy = mirrored(2);
  const auto batches = data::range(4).batch(2);
  const auto dataset_fn = [&](const InputContext&) { return batches; };
  const InputOptions per_replica{.replication_mode = InputReplicationMode::PerReplica};
  EXPECT_THROW(strategy.distribute_dataset(batches, per_replica), c10::NotImplementedError);
  EXPECT_THROW(OneDeviceStrategy("CPU:0").distribute_datasets_from_function(dataset_fn, per_replica),
               c10::NotImplementedError);
  EXPECT_THROW(strategy.distribute_datasets_from_function(dataset_fn, {.place_dataset_on_device = true}),
               c10::ValueError);
  EXPECT_THROW(strategy.distribute_datasets_from_function(
                   dataset_fn, {.replication_mode = InputReplicationMode::PerReplica, .place_dataset_on_device = true}),
               c10::ValueError);
  EXPECT_THROW(strategy.distribute_dataset(batches, {.place_dataset_on_device = true}), c10::ValueError)
      << "it would do nothing";
  EXPECT_THROW(strategy.distribute_dataset(batches, {.per_replica_buffer_size = -1}), c10::ValueError);
  EXPECT_THROW(strategy.make_input_fn_iterator(dataset_fn, InputReplicationMode::PerReplica), c10::ValueError);
}

TEST_F(DistributeDataset, AnyBufferGivesTheSame) {
  for (const int64_t buffer_size : {0, 1, 3}) {
    for (const bool fetch : {false, true}) {
      const auto dataset = mirrored(3).distribute_dataset(
          data::range(8).batch(3), {.fetch_to_device = fetch, .per_replica_buffer_size = buffer_size});
      EXPECT_EQ(steps_of(dataset), (StepIds{{{0}, {1}, {2}}, {{3}, {4}, {5}}, {{6}, {7}, {}}}));
    }
  }
}

TEST_F(DistributeDataset, FromFunctionCallsItForEachPipeline) {
  const auto strategy = mirrored(2);
  std::vector<std::string> contexts;
  const auto dataset_fn = [&](const InputContext& context) {
    contexts.push_back(context.str());
    return data::range(7)
        .shard(context.num_input_pipelines, context.input_pipeline_id)
        .batch(context.get_per_replica_batch_size(4));
  };
  EXPECT_EQ(steps_of(strategy.distribute_datasets_from_function(dataset_fn)),
            (StepIds{{{0, 1}, {2, 3}}, {{4, 5}, {6}}}));
  EXPECT_EQ(contexts, std::vector<std::string>{"tf.distribute.InputContext(input pipeline id 0, total: 1)"});
  const InputOptions per_replica{.replication_mode = InputReplicationMode::PerReplica};
  EXPECT_EQ(steps_of(strategy.distribute_datasets_from_function(dataset_fn, per_replica)),
            (StepIds{{{0, 2}, {1, 3}}, {{4, 6}, {5}}}));
  EXPECT_EQ(contexts.size(), 3u);
}

TEST_F(DistributeDataset, PartialStepsOfFunctionsAreKept) {
  const auto dataset_fn = [](const InputContext&) { return data::range(7).batch(2, {.drop_remainder = true}); };
  EXPECT_EQ(steps_of(mirrored(2).distribute_datasets_from_function(dataset_fn)),
            (StepIds{{{0, 1}, {2, 3}}, {{4, 5}, {}}}));
}

TEST_F(DistributeDataset, InputFunctionsMayGiveElements) {
  const auto strategy = mirrored(2);
  std::atomic<int64_t> calls{0};
  auto iterator = strategy.make_input_fn_iterator(
      [&](const InputContext&) { return [&calls] { return at::full({1}, calls++, at::kLong); }; });
  iterator.initialize();
  const int64_t first = ids_of(iterator.get_next())[0][0];
  const auto next = ids_of(iterator.get_next());
  EXPECT_EQ(next[0][0], first + 2);
  EXPECT_EQ(next[1][0], first + 3);
}

TEST_F(DistributeDataset, NumpyDatasetHasTheRowsOfAllTensors) {
  const auto strategy = mirrored(2);
  const auto dataset = strategy.make_numpy_dataset(std::tuple{at::arange(6).reshape({3, 2}), at::arange(3)}).batch(2);
  std::vector<Ids> rows;
  for (const auto& [x, y] : strategy.distribute_dataset(dataset)) {
    rows.push_back(joined(ids_of(x)));
    EXPECT_EQ(x[0].size(0), y[0].size(0));
  }
  EXPECT_EQ(rows, (std::vector<Ids>{{0, 1, 2, 3}, {4, 5}}));
}

// "Lists of Numpy arrays are stacked, as that is normal tf.data.Dataset behavior."
TEST_F(DistributeDataset, NumpyDatasetStacksLists) {
  const auto strategy = mirrored(2);
  const std::vector<at::Tensor> list{at::arange(3), at::arange(3) + 10};
  const auto rows = strategy.make_numpy_dataset(list).collect();
  ASSERT_EQ(rows.size(), 2u) << "one element for each array of the list";
  EXPECT_TRUE(rows[0].equal(list[0]));
  EXPECT_TRUE(rows[1].equal(list[1]));
  const auto nest = strategy.make_numpy_dataset(
      std::map<std::string, std::vector<std::vector<at::Tensor>>>{{"x", {{list[0], list[1]}, {list[1], list[0]}}}});
  EXPECT_TRUE(nest.collect().at(1).at("x").equal(at::stack({list[1], list[0]})));
  const auto pairs = strategy.make_numpy_dataset(std::tuple{list, std::vector<int64_t>{7, 8}}).collect();
  EXPECT_EQ(std::get<1>(pairs.at(1)).item<int64_t>(), 8);
  EXPECT_THROW(strategy.make_numpy_dataset(std::vector{at::arange(3), at::arange(2)}), c10::ValueError);
  EXPECT_THROW(strategy.make_numpy_dataset(std::vector<at::Tensor>{}), c10::ValueError);
}

TEST_F(DistributeDataset, ExceptionsComeOutAndLaterStepsGoOn) {
  const auto fails_at_5 = [](int64_t i) {
    if (i == 5) throw std::domain_error("five");
    return i;
  };
  for (const auto policy : {AutoShardPolicy::Auto, AutoShardPolicy::Off}) {
    for (const int64_t buffer_size : {0, 1}) {
      const auto dataset = data::range(10).map(fails_at_5).batch(4).with_options({.auto_shard_policy = policy});
      auto iterator = mirrored(2).distribute_dataset(dataset, {.per_replica_buffer_size = buffer_size}).iterator();
      EXPECT_EQ(joined(ids_of(iterator.get_next())), (Ids{0, 1, 2, 3}));
      EXPECT_THROW(iterator.get_next(), std::domain_error);
      EXPECT_EQ(joined(ids_of(iterator.get_next())), (Ids{4, 6, 7, 8})) << "only the element that failed is missing";
      EXPECT_EQ(joined(ids_of(iterator.get_next())), (Ids{9}));
      EXPECT_FALSE(iterator.get_next_as_optional().has_value());
    }
  }
}

TEST_F(DistributeDataset, ExceptionsDoNotLoseWhatOtherReplicasGot) {
  const auto dataset_fn = [](const InputContext&) {
    return data::range(6).map([](int64_t i) {
      if (i == 3) throw std::domain_error("three");
      return at::full({1}, i, at::kLong);
    });
  };
  auto iterator = mirrored(2).distribute_datasets_from_function(dataset_fn).iterator();
  EXPECT_EQ(joined(ids_of(iterator.get_next())), (Ids{0, 1}));
  EXPECT_THROW(iterator.get_next(), std::domain_error);
  EXPECT_EQ(joined(ids_of(iterator.get_next())), (Ids{2, 4}));
  EXPECT_EQ(joined(ids_of(iterator.get_next())), (Ids{5}));
}

TEST_F(DistributeDataset, IteratorsMayBeLeftEarly) {
  const auto endless =
      data::range(5).repeat().map([](int64_t i) { return i; }, {.num_threads = 2}).batch(2).prefetch(2);
  const auto dataset = mirrored(2).distribute_dataset(endless, {.per_replica_buffer_size = 2});
  EXPECT_TRUE(dataset.cardinality().is_infinite());
  for (int i = 0; i < 20; ++i) {
    auto iterator = dataset.iterator();
    for (int step = 0; step < i % 3; ++step) iterator.get_next();
  }
}

/// The weights after one epoch of SGD on `examples` of them, in batches of 8 with a remainder.
at::Tensor train(const Strategy& strategy, int64_t examples) {
  const at::Tensor x = at::arange(examples * 2, at::kFloat).reshape({examples, 2}).remainder(5) / 4;
  const at::Tensor y = x.matmul(torch::tensor({2.0f, -3.0f}));
  auto scope = strategy.scope();
  const Variable weight(at::zeros({2}), {.name = "weight"});
  const auto sgd = optimizer<torch::optim::SGD>(std::vector{weight}, torch::optim::SGDOptions(0.1));
  const auto batches = data::from_tensor_slices(std::tuple{x, y}).batch(8);
  for (const auto& [batch_x, batch_y] : strategy.distribute_dataset(batches)) {
    const auto count =
        strategy.reduce("sum", strategy.run([](const at::Tensor& b) { return at::scalar_tensor(b.size(0)); }, batch_y));
    const auto global_batch = count.item<int64_t>();
    strategy.run(
        [&](const at::Tensor& own_x, const at::Tensor& own_y) {
          const at::Tensor loss = (own_x.matmul(weight.value()) - own_y).square();
          sgd.minimize(average_loss(loss, global_batch));
        },
        batch_x, batch_y);
  }
  return weight.read_value().detach().clone();
}

TEST_F(DistributeDataset, TrainingWithRemaindersIsThatOfOneDevice) {
  for (int64_t remainder = 0; remainder < 8; ++remainder) {
    const at::Tensor expected = train(OneDeviceStrategy("CPU:0"), 16 + remainder);
    for (int replicas = 1; replicas <= 4; ++replicas) {
      const at::Tensor actual = train(mirrored(replicas), 16 + remainder);
      EXPECT_TRUE(at::allclose(actual, expected, 1e-5, 1e-6)) << remainder << " left over, " << replicas << " replicas";
    }
  }
}

}  // namespace
}  // namespace lockstep
