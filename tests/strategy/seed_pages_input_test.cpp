// The examples of the API pages about datasets, and what they print. Logical CPUs replace GPUs, and MirroredStrategy
// replaces strategies that need other machines.

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/seed_page_inputs.h"
#include "tests/strategy/shown.h"

namespace lockstep {
namespace {

using tests::dataset_fn;
using tests::numbers_in;
using tests::RecordFiles;
using tests::shown;

class SeedPagesInput : public ::testing::Test {
 protected:
  void SetUp() override { set_logical_devices("CPU", 2); }
  void TearDown() override { reset_logical_devices(); }

  const std::vector<std::string> two{"CPU:0", "CPU:1"};
};

// Pages of OneDeviceStrategy and runner.TPUStrategy: experimental_distribute_dataset.
TEST_F(SeedPagesInput, DistributeDataset) {
  const int64_t global_batch_size = 2;
  const MirroredStrategy strategy(two);
  const auto dataset = data::range(4).batch(global_batch_size);
  const auto dist_dataset = strategy.experimental_distribute_dataset(dataset);
  const auto replica_fn = [](const at::Tensor& input) { return input * 2; };
  std::string result;
  for (const auto& x : dist_dataset) result += shown(strategy.run(replica_fn, x)) + "\n";
  EXPECT_EQ(result,
            "PerReplica:{\n"
            "  0: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([0])>,\n"
            "  1: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([2])>\n"
            "}\n"
            "PerReplica:{\n"
            "  0: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([4])>,\n"
            "  1: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([6])>\n"
            "}\n");
}

// Page of MirroredStrategy: the example of the class.
TEST_F(SeedPagesInput, TrainEpochs) {
  const MirroredStrategy my_strategy(two);
  auto scope = my_strategy.scope();
  const auto distribute_train_epoch = [&](const DistributedDataset<at::Tensor>& dataset) {
    const auto replica_fn = [](const at::Tensor& input) { return input.sum(); };
    at::Tensor total_result = at::zeros({}, at::kLong);
    for (const auto& x : dataset) {
      const auto per_replica_result = my_strategy.run(replica_fn, x);
      total_result += my_strategy.reduce(ReduceOp::Sum, per_replica_result, std::nullopt);
    }
    return total_result;
  };
  const auto dist_dataset = my_strategy.experimental_distribute_dataset(data::range(10).batch(4));
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(distribute_train_epoch(dist_dataset).item<int64_t>(), 45);
}

// Pages of MirroredStrategy and MultiWorkerMirroredStrategy: experimental_distribute_dataset of record files, and its
// element_spec.
TEST_F(SeedPagesInput, DistributeRecordFiles) {
  const RecordFiles files;
  const MirroredStrategy strategy(two);
  const auto dist_dataset = strategy.experimental_distribute_dataset(numbers_in(files.names).batch(4));
  EXPECT_EQ(shown(dist_dataset.element_spec()[1]), "TensorSpec(shape=(None,), dtype=int64)");
  int64_t sum = 0;
  int steps = 0;
  const auto train_step = [](const at::Tensor& x) { return x.sum(); };
  for (const auto& x : dist_dataset) {
    sum += strategy.reduce("sum", strategy.run(train_step, x)).item<int64_t>();
    ++steps;
  }
  EXPECT_EQ(sum, 10 + 20 + 21 + 30 + 31 + 32 + 40 + 41 + 42 + 43);
  EXPECT_EQ(steps, 3);
}

// Pages of MirroredStrategy and MultiWorkerMirroredStrategy: experimental_distribute_datasets_from_function.
TEST_F(SeedPagesInput, DatasetsFromFunction) {
  const MirroredStrategy strategy(two);
  const auto inputs = strategy.experimental_distribute_datasets_from_function(dataset_fn);
  EXPECT_EQ(shown(inputs.element_spec()[0]), "TensorSpec(shape=(None, 1, 1), dtype=float32)");
  int steps = 0;
  for (const auto& batch : inputs) {
    const auto replica_results = strategy.run([](const at::Tensor& x) { return x.sum(); }, batch);
    EXPECT_EQ(strategy.reduce("sum", replica_results).item<float>(), 8.0f);
    if (++steps == 3) break;
  }
}

// Page of MirroredStrategy: element_spec of the iterator, next(iterator). Also runner.TPUStrategy:
// args=(next(iterator),).
TEST_F(SeedPagesInput, NextOfIterator) {
  const MirroredStrategy strategy(two);
  auto iterator = strategy.distribute_datasets_from_function(dataset_fn).iterator();
  EXPECT_EQ(shown(iterator.element_spec()[1]), "TensorSpec(shape=(None, 1, 1), dtype=float32)");
  const auto step_fn = [](const at::Tensor& inputs) { return at::add(inputs, inputs); };
  for (int step = 0; step < 3; ++step) {
    const auto output = strategy.run(step_fn, iterator.get_next());
    EXPECT_TRUE(output[0].equal(at::full({4, 1, 1}, 2.0f)));
  }
}

// All pages: experimental_make_numpy_dataset. The example does not batch the dataset; one replica needs no batches.
TEST_F(SeedPagesInput, NumpyDataset) {
  const OneDeviceStrategy strategy("/cpu:0");
  const at::Tensor numpy_input = at::ones({10});
  const auto dataset = strategy.experimental_make_numpy_dataset(numpy_input);
  const auto dist_dataset = strategy.experimental_distribute_dataset(dataset);
  int elements = 0;
  for (const auto& x : dist_dataset)
    elements += strategy.run([](const at::Tensor& one) { return one; }, x)[0].item<int>();
  EXPECT_EQ(elements, 10);
  EXPECT_THROW(MirroredStrategy(two).experimental_distribute_dataset(dataset), c10::ValueError);
}

// Pages of v1 strategies: make_input_fn_iterator and experimental_run.
TEST_F(SeedPagesInput, InputFunctionIterator) {
  const MirroredStrategy strategy(two);
  auto scope = strategy.scope();
  auto iterator = strategy.make_input_fn_iterator(dataset_fn);
  iterator.initialize();
  const auto replica_fn = [](const at::Tensor& x) { return x.sum(); };
  const auto replica_results = strategy.experimental_run(replica_fn, iterator);
  EXPECT_EQ(replica_results[0].item<float>(), 4.0f);
  EXPECT_EQ(replica_results[1].item<float>(), 4.0f);
}

// Pages of v1 strategies: make_dataset_iterator.
TEST_F(SeedPagesInput, DatasetIterator) {
  const MirroredStrategy strategy(two);
  auto iterator = strategy.make_dataset_iterator(data::range(4).batch(2));
  iterator.initialize();
  const auto results = strategy.experimental_run([](const at::Tensor& x) { return x + 1; }, iterator);
  EXPECT_EQ(results[1].item<int64_t>(), 2);
}

// Page of CentralStorageStrategy: the example of the class.
TEST_F(SeedPagesInput, TrainStepOnRemainder) {
  const MirroredStrategy strategy(two);
  const auto dist_dataset = strategy.experimental_distribute_dataset(data::range(5).batch(2));
  auto scope = strategy.scope();
  const auto train_step = [](const at::Tensor& val) { return val + 1; };
  std::vector<int64_t> seen;
  for (const auto& x : dist_dataset) {
    for (const at::Tensor& result : strategy.local_results(strategy.run(train_step, x))) {
      for (int64_t i = 0; i < result.size(0); ++i) seen.push_back(result[i].item<int64_t>());
    }
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

// Page of CentralStorageStrategy: its first example.
TEST_F(SeedPagesInput, CentralStorageStrategy) {
  CentralStorageStrategy strategy;
  const auto ds = data::range(5).batch(2);
  const auto dist_dataset = strategy.experimental_distribute_dataset(ds);
  const auto scope = strategy.scope();
  const auto train_step = [](const at::Tensor& val) { return val + 1; };
  std::vector<int64_t> seen;
  for (const auto& x : dist_dataset) {
    const at::Tensor result = at::Tensor(strategy.run(train_step, x)).cpu();
    seen.insert(seen.end(), result.data_ptr<int64_t>(), result.data_ptr<int64_t>() + result.numel());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

// Page of CentralStorageStrategy: experimental_distribute_dataset "prints PerReplica values [0, 1], [2, 3], ...".
TEST_F(SeedPagesInput, PrintsValuesOfEachStep) {
  const CentralStorageStrategy strategy(two);
  std::vector<std::string> printed;
  for (const auto& x : strategy.experimental_distribute_dataset(data::range(10).batch(2))) printed.push_back(shown(x));
  ASSERT_EQ(printed.size(), 5u);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(printed[step],
              "PerReplica:{\n"
              "  0: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([" +
                  std::to_string(2 * step) +
                  "])>,\n"
                  "  1: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([" +
                  std::to_string(2 * step + 1) + "])>\n}");
  }
}

// Page of CentralStorageStrategy: the example of reduce, whose dataset is meant to have batches of 8.
TEST_F(SeedPagesInput, ReduceOfBatches) {
  const CentralStorageStrategy strategy(two);
  const auto dist_dataset = strategy.experimental_distribute_dataset(data::range(8).batch(8));
  auto scope = strategy.scope();
  for (const auto& x : dist_dataset) {
    const auto result = strategy.run([](const at::Tensor& val) { return val; }, x);
    EXPECT_EQ(numpy_repr(strategy.reduce(ReduceOp::Sum, result, std::nullopt)), "array([ 4,  6,  8, 10])");
    EXPECT_EQ(numpy_repr(strategy.reduce(ReduceOp::Sum, result, 0)), "28");
  }
}

// All pages: "the last partial batch" of 6 is divided into [0, 1, 2, 3] and [4, 5] for a per-replica batch of 4.
TEST_F(SeedPagesInput, LastPartialBatch) {
  const MirroredStrategy strategy(two);
  const auto batches = data::range(6).batch(8).with_options({.auto_shard_policy = data::AutoShardPolicy::Off});
  for (const auto& x : strategy.experimental_distribute_dataset(batches)) {
    EXPECT_EQ(x[0].size(0), 4);
    EXPECT_EQ(x[1].size(0), 2);
    const auto floats = strategy.run([](const at::Tensor& val) { return val.to(at::kFloat); }, x);
    EXPECT_EQ(strategy.reduce(ReduceOp::Mean, floats, 0).item<float>(), 15.0f / 6.0f);
  }
}

}  // namespace
}  // namespace lockstep
