// The page of MultiWorkerMirroredStrategy: its examples, and what its sentences promise. `lockstep run` starts two
// workers, each of which runs all tests, in step with the other.

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/comm/engines.h"
#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/seed_page_inputs.h"
#include "tests/strategy/shown.h"

namespace lockstep {
namespace {

using tests::dataset_fn;
using tests::kGlobalBatchSize;
using tests::numbers_in;
using tests::RecordFiles;
using tests::shown;

constexpr int kWorkers = 2;

int worker_of(const Strategy& strategy) { return strategy.cluster_resolver()->task_id().value(); }

/// Checks that both workers take part in what the strategy does.
void expect_sum_of_both(const Strategy& strategy) {
  EXPECT_EQ(strategy.num_replicas_in_sync(), kWorkers);
  const auto ids = strategy.run([] { return at::scalar_tensor(get_replica_context().replica_id_in_sync_group() + 1); });
  EXPECT_EQ(strategy.reduce("sum", ids).item<float>(), 1 + 2);
}

// "When 'TF_CONFIG' environment variable is set, it parses cluster_spec, task_type and task_id".
TEST(SeedPage, ClusterFromTfConfig) {
  const MultiWorkerMirroredStrategy strategy;
  expect_sum_of_both(strategy);
  const TFConfigClusterResolver config;
  const auto resolver = strategy.cluster_resolver();
  ASSERT_NE(resolver, nullptr);
  EXPECT_EQ(resolver->task_type(), "worker");
  EXPECT_EQ(resolver->task_id(), config.task_id());
  EXPECT_EQ(resolver->cluster_spec(), config.cluster_spec());
  EXPECT_EQ(resolver->master(), config.cluster_spec().task_address("worker", worker_of(strategy)));
  EXPECT_EQ(resolver->master("worker", 1, "grpc"), "grpc://" + config.cluster_spec().task_address("worker", 1));
}

// The example of `cluster_resolver`: this block runs on workers, that one on parameter servers.
TEST(SeedPage, TaskTypeOfTheExample) {
  const Environment environment({{"TF_CONFIG", R"({
    "cluster": {"worker": ["localhost:12345", "localhost:23456"], "ps": ["localhost:34567"]},
    "task": {"type": "worker", "index": 0}})"}});
  const TFConfigClusterResolver resolver({.variables = environment});
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(worker_place(resolver)->num_workers, 2);
}

// "You can also pass a ClusterResolver instance when instantiating the strategy."
TEST(SeedPage, ClusterFromResolver) {
  const TFConfigClusterResolver config;
  const auto resolver = std::make_shared<SimpleClusterResolver>(
      config.cluster_spec(), SimpleOptions{.task_type = config.task_type(), .task_id = config.task_id()});
  const MultiWorkerMirroredStrategy strategy(resolver);
  EXPECT_EQ(strategy.cluster_resolver(), resolver);
  expect_sum_of_both(strategy);
}

// The constructor's arguments: `communication=CollectiveCommunication.AUTO, cluster_resolver=None`.
TEST(SeedPage, Communication) {
  expect_sum_of_both(MultiWorkerMirroredStrategy(CollectiveCommunication::Auto));
  if (!comm::find_engine("gloo").available) GTEST_SKIP() << comm::find_engine("gloo").why_not;
  expect_sum_of_both(MultiWorkerMirroredStrategy(CollectiveCommunication::Ring, resolve_cluster()));
}

// CommunicationOptions: "bytes_per_pack", the size of the buckets of gradients between workers.
TEST(SeedPage, BytesPerPack) {
  if (!comm::find_engine("gloo").available) GTEST_SKIP() << comm::find_engine("gloo").why_not;
  const auto collectives_of_a_step = [](int64_t bytes_per_pack) {
    const MultiWorkerMirroredStrategy strategy(
        nullptr, {.bytes_per_pack = bytes_per_pack, .implementation = CommunicationImplementation::Ring}, {"CPU:0"});
    const auto scope = strategy.scope();
    auto model = module<torch::nn::Sequential>(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    const auto step = [&] { strategy.run([&] { sgd.minimize(model(at::ones({1, 4})).sum()); }); };
    const auto count = [&] { return detail::Access::impl(strategy).gradient_recorder().entries(0).size(); };
    step();
    const size_t before = count();
    step();
    return count() - before;
  };
  EXPECT_EQ(collectives_of_a_step(0), 1u);
  EXPECT_EQ(collectives_of_a_step(1), 4u) << "a bucket for each of the four parameters";
}

// "By default it uses all local GPUs or CPU for single-worker training."
TEST(SeedPage, NoClusterIsLocal) {
  const MultiWorkerMirroredStrategy strategy(resolve_cluster(Environment(std::map<std::string, std::string>{})));
  EXPECT_EQ(strategy.num_replicas_in_sync(), static_cast<int>(strategy.extended().worker_devices().size()));
  EXPECT_EQ(strategy.engine(), "local");
  EXPECT_TRUE(strategy.extended().should_checkpoint());
  const auto results = strategy.run([] { return at::ones({}); });
  EXPECT_EQ(strategy.reduce("mean", results).item<float>(), 1.0f);
}

// "It creates copies of all variables in the model on each device across all workers", and keeps them "in sync".
TEST(SeedPage, VariablesAreCopiesInSync) {
  const MultiWorkerMirroredStrategy strategy;
  auto scope = strategy.scope();
  const int worker = worker_of(strategy);
  const Variable v(10.0 + worker, {.aggregation = VariableAggregation::Sum});
  EXPECT_EQ(v.read_value().item<float>(), 10.0f) << "the first worker's value is the start";
  strategy.run([&] { v.assign_add(at::scalar_tensor(worker + 1.0f)); });
  const at::Tensor own = strategy.experimental_local_results(v)[0];
  EXPECT_EQ(own.item<float>(), 13.0f);
}

// "If so, try to shard the input files": the example of record files, a worker's part of them and its element_spec.
TEST(SeedPage, DistributeRecordFiles) {
  const RecordFiles files;
  const MultiWorkerMirroredStrategy strategy;
  const auto dist_dataset = strategy.experimental_distribute_dataset(numbers_in(files.names).batch(kWorkers));
  EXPECT_EQ(shown(dist_dataset.element_spec()[0]), "TensorSpec(shape=(None,), dtype=int64)");
  int64_t total = 0;
  for (const auto& x : dist_dataset) {
    for (const at::Tensor& own : strategy.experimental_local_results(x)) {
      for (int64_t i = 0; i < own.size(0); ++i) {
        EXPECT_EQ((own[i].item<int64_t>() / 10 - 1) % kWorkers, worker_of(strategy)) << "a file of the other worker";
      }
    }
    total += strategy.reduce("sum", strategy.run([](const at::Tensor& one) { return one.sum(); }, x)).item<int64_t>();
  }
  EXPECT_EQ(total, 10 + 20 + 21 + 30 + 31 + 32 + 40 + 41 + 42 + 43);
}

// "There has to be at least one input file per worker. If you have less [...] disable dataset sharding across workers".
TEST(SeedPage, FewerFilesThanWorkers) {
  const RecordFiles files;
  const MultiWorkerMirroredStrategy strategy;
  const auto numbers = numbers_in({files.names.back()}).batch(kWorkers);
  EXPECT_THROW(strategy.experimental_distribute_dataset(numbers).iterator().get_next(), c10::ValueError);
  const auto whole = numbers.with_options({.auto_shard_policy = data::AutoShardPolicy::Off});
  std::vector<int64_t> seen;
  for (const auto& x : strategy.experimental_distribute_dataset(whole)) {
    for (const at::Tensor& own : strategy.local_results(x)) seen.push_back(own.item<int64_t>());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{40, 41, 42, 43}));
}

// "If the attempt to shard by file is unsuccessful [...] we will shard the dataset evenly at the end".
TEST(SeedPage, DistributeWithoutFiles) {
  const MultiWorkerMirroredStrategy strategy;
  const auto dist_dataset = strategy.experimental_distribute_dataset(data::range(8).batch(4));
  int64_t first = 2 * worker_of(strategy);
  for (const auto& x : dist_dataset) {
    EXPECT_TRUE(strategy.local_results(x)[0].equal(at::arange(first, first + 2)));
    first += 4;
  }
  EXPECT_EQ(first, 8 + 2 * worker_of(strategy));
}

// "`dataset_fn` will be called once for each worker in the strategy."
TEST(SeedPage, DatasetsFromFunction) {
  const MultiWorkerMirroredStrategy strategy;
  std::vector<InputContext> contexts;
  const auto ds = strategy.experimental_distribute_datasets_from_function([&](const InputContext& input_context) {
    contexts.push_back(input_context);
    return dataset_fn(input_context);
  });
  ASSERT_EQ(contexts.size(), 1u);
  EXPECT_EQ(contexts[0].num_input_pipelines, kWorkers);
  EXPECT_EQ(contexts[0].input_pipeline_id, worker_of(strategy));
  EXPECT_EQ(contexts[0].num_replicas_in_sync, kWorkers);
  EXPECT_EQ(shown(ds.element_spec()[0]), "TensorSpec(shape=(None, 1, 1), dtype=float32)");
  int steps = 0;
  for (const auto& batch : ds) {
    const auto replica_results = strategy.run([](const at::Tensor& inputs) { return inputs.sum(); }, batch);
    EXPECT_EQ(strategy.reduce("sum", replica_results).item<float>(), static_cast<float>(kGlobalBatchSize));
    if (++steps == 3) break;
  }
}

// "Each worker will be its own client, and this function will only return values computed on that worker."
TEST(SeedPage, LocalResults) {
  const MultiWorkerMirroredStrategy strategy;
  const auto ids = strategy.run([] { return get_replica_context().replica_id_in_sync_group(); });
  EXPECT_EQ(strategy.experimental_local_results(ids), std::vector<int>{worker_of(strategy)});
  EXPECT_EQ(strategy.experimental_local_results(7), std::vector<int>{7}) << "a single value is returned as (value,)";
}

// The example of `experimental_make_numpy_dataset`, which does not batch the dataset: with several replicas one has to.
TEST(SeedPage, NumpyDataset) {
  const MultiWorkerMirroredStrategy strategy;
  auto scope = strategy.scope();
  const auto dataset = strategy.experimental_make_numpy_dataset(at::ones({10}));
  EXPECT_THROW(strategy.experimental_distribute_dataset(dataset), c10::ValueError);
  float sum = 0;
  for (const auto& x : strategy.experimental_distribute_dataset(dataset.batch(4))) {
    const auto result = strategy.run([](const at::Tensor& rows) { return rows; }, x);
    sum += strategy.reduce("sum", result, 0).item<float>();
  }
  EXPECT_EQ(sum, 10.0f);
}

// "Each replica will take a single, different input from the inputs provided by one `get_next` call".
TEST(SeedPage, DatasetIterator) {
  const MultiWorkerMirroredStrategy strategy;
  auto iterator = strategy.make_dataset_iterator(data::range(4).batch(kWorkers));
  iterator.initialize();
  const auto results = strategy.experimental_run([](const at::Tensor& x) { return x * 10; }, iterator);
  EXPECT_EQ(strategy.local_results(results)[0].item<int64_t>(), 10 * worker_of(strategy));
  EXPECT_EQ(strategy.reduce("sum", results, 0).item<int64_t>(), 10);
  const auto ids = strategy.experimental_run([] { return get_replica_context().replica_id_in_sync_group(); });
  EXPECT_EQ(ids[0], worker_of(strategy));
}

// The example of `make_input_fn_iterator`; "only `PER_WORKER` is supported currently".
TEST(SeedPage, InputFunctionIterator) {
  const MultiWorkerMirroredStrategy strategy;
  auto scope = strategy.scope();
  auto iterator = strategy.make_input_fn_iterator(dataset_fn);
  iterator.initialize();
  const auto replica_results = strategy.experimental_run([](const at::Tensor& x) { return x.sum(); }, iterator);
  EXPECT_EQ(replica_results[0].item<float>(), 4.0f) << "a batch for each replica";
  EXPECT_EQ(strategy.reduce("sum", replica_results).item<float>(), static_cast<float>(kGlobalBatchSize));
  EXPECT_THROW(strategy.make_input_fn_iterator(dataset_fn, InputReplicationMode::PerReplica), c10::ValueError);
}

// `reduce`: "[0, 1, 2, 3] will be on replica 0 and [4, 5, 6, 7] will be on replica 1".
TEST(SeedPage, Reduce) {
  const MultiWorkerMirroredStrategy strategy;
  for (const auto& x : strategy.experimental_distribute_dataset(data::range(8).batch(8))) {
    const auto result = strategy.run([](const at::Tensor& value) { return value; }, x);
    EXPECT_TRUE(strategy.reduce(ReduceOp::Sum, result, std::nullopt).equal(torch::tensor({4, 6, 8, 10})));
    EXPECT_EQ(strategy.reduce(ReduceOp::Sum, result, 0).item<int64_t>(), 28);
  }
}

// `reduce`: "for multi client MultiWorkerMirroredStrategy, this is CPU of each worker".
TEST(SeedPage, DevicesOfResults) {
  const MultiWorkerMirroredStrategy strategy;
  const std::string task = "/job:worker/replica:0/task:" + std::to_string(worker_of(strategy));
  EXPECT_EQ(strategy.extended().worker_devices(), std::vector<std::string>{task + "/device:CPU:0"});
  std::string computed_on;
  const auto result = strategy.run([&] {
    computed_on = current_device();
    return at::scalar_tensor(get_replica_context().replica_id_in_sync_group(), at::kInt);
  });
  EXPECT_EQ(computed_on, task + "/device:CPU:0");
  const at::Tensor total = strategy.reduce("SUM", result, std::nullopt);
  EXPECT_EQ(repr(total), "<tf.Tensor: shape=(), dtype=int32, numpy=1>");
  EXPECT_TRUE(total.device().is_cpu());
}

// "You would get a shape mismatch unless you specify `axis=0`. [It] will use the correct denominator of 6."
TEST(SeedPage, ReduceOfLastPartialBatch) {
  const MultiWorkerMirroredStrategy strategy;
  const auto uneven = strategy.run([] {
    const bool first = get_replica_context().replica_id_in_sync_group() == 0;
    return first ? at::arange(0, 4, at::kFloat) : at::arange(4, 6, at::kFloat);
  });
  EXPECT_EQ(strategy.reduce(ReduceOp::Mean, uneven, 0).item<float>(), 15.0f / 6.0f);
  try {
    strategy.reduce(ReduceOp::Sum, uneven);
    ADD_FAILURE() << "shapes differ";
  } catch (const c10::Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("[reduce]", 0), 0u) << error.what();
    EXPECT_NE(std::string(error.what()).find("reduce(SUM"), std::string::npos) << error.what();
  }
}

// "`fn` may call get_replica_context() to access members such as `all_reduce`"; examples 1 and 2 of `run`, which
// return a Tensor where this worker has a single replica.
TEST(SeedPage, Run) {
  const MultiWorkerMirroredStrategy strategy;
  const at::Tensor tensor_input = at::scalar_tensor(3.0, at::kFloat);
  const auto replica_fn = [](const at::Tensor& input) { return input * 2.0; };
  EXPECT_EQ(shown(strategy.run(replica_fn, tensor_input)), "<tf.Tensor: shape=(), dtype=float32, numpy=6.0>");
  const auto value_fn = [](const ValueContext& context) {
    return at::scalar_tensor(context.num_replicas_in_sync, at::kInt);
  };
  const auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  const auto twice = strategy.run([](const at::Tensor& input) { return input * 2; }, distributed_values);
  EXPECT_EQ(shown(twice), "<tf.Tensor: shape=(), dtype=int32, numpy=4>");
  const auto sum = strategy.run([](const at::Tensor& input) { return get_replica_context().all_reduce("sum", input); },
                                distributed_values);
  EXPECT_EQ(sum[0].item<int>(), 2 * kWorkers);
}

// The example of `scope`, and what happens when it is entered.
TEST(SeedPage, Scope) {
  const MultiWorkerMirroredStrategy strategy;
  const Variable mirrored_variable = [&] {
    auto scope = strategy.scope();
    EXPECT_EQ(get_strategy(), strategy);
    EXPECT_TRUE(in_cross_replica_context());
    return Variable(1.0);
  }();
  EXPECT_FALSE(has_strategy());
  EXPECT_EQ(shown(mirrored_variable),
            "MirroredVariable:{\n  0: <tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>\n}");
  const Variable regular_variable(1.0);
  EXPECT_EQ(shown(regular_variable), "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>");
  mirrored_variable.assign_add(2.0);
  EXPECT_EQ(mirrored_variable.read_value().item<float>(), 3.0f) << "works without the user having to enter the scope";
}

// "The updated config has something needed to run a strategy, e.g. [...] device filters".
TEST(SeedPage, UpdateConfigProto) {
  const MultiWorkerMirroredStrategy strategy;
  const RuntimeConfig config;
  const RuntimeConfig updated = strategy.update_config_proto(config);
  EXPECT_EQ(config, RuntimeConfig{}) << "the argument is left alone";
  EXPECT_EQ(updated.collective_group_leader, "/job:worker/replica:0/task:0");
  EXPECT_EQ(updated.device_filters,
            std::vector<std::string>{"/job:worker/task:" + std::to_string(worker_of(strategy))});
}

}  // namespace
}  // namespace lockstep
