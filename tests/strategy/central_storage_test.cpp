// Central storage beyond the conformance suite: the device of parameters, and that each is stored once.

#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"
#include "tests/strategy/shown.h"

namespace lockstep::tests {
namespace {

CentralStorageStrategy central(int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
  return CentralStorageStrategy(devices);
}

using ::testing::HasSubstr;

class CentralStorageTest : public ReplicasTest {};

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST_F(CentralStorageTest, NoDevicesInBracesAreTheDefault) {
  EXPECT_EQ(CentralStorageStrategy({}).extended().worker_devices(),
            CentralStorageStrategy().extended().worker_devices());
  EXPECT_EQ(CentralStorageStrategy({}, "CPU:0").extended().parameter_devices(), std::vector<std::string>{"CPU:0"});
  EXPECT_EQ(CentralStorageStrategy({"CPU:0", "CPU:1"}).num_replicas_in_sync(), 2);
  EXPECT_EQ(MirroredStrategy({}).extended().worker_devices(), MirroredStrategy().extended().worker_devices());
}

TEST_F(CentralStorageTest, ChoosesDevicesAsThePageSays) {
  EXPECT_EQ(CentralStorageStrategy().num_replicas_in_sync(), std::max<size_t>(1, list_logical_devices("GPU").size()));
  const std::string first = "/job:localhost/replica:0/task:0/device:CPU:0";
  const CentralStorageStrategy one({"CPU:0"});
  EXPECT_EQ(one.extended().parameter_devices(), std::vector{first}) << "the only device";
  const auto two = central(2);
  EXPECT_EQ(two.extended().parameter_devices(), std::vector<std::string>{"/device:CPU:0"});
  EXPECT_EQ(two.extended().worker_devices().size(), 2u);
  EXPECT_STREQ(two.type_name(), "CentralStorageStrategy");
  EXPECT_EQ(two.cluster_resolver(), nullptr);
  EXPECT_THROW(CentralStorageStrategy({"CPU:0"}, "CPU:9"), c10::ValueError);
  EXPECT_THROW(CentralStorageStrategy({"CPU:9"}), c10::ValueError);
}

TEST_F(CentralStorageTest, ReplicasReadTheOneCopyInPlace) {
  for (const int replicas : {1, 2, 5}) {
    const auto strategy = central(replicas);
    const auto scope = strategy.scope();
    const Variable variable(torch::ones({3}));
    auto model = module<torch::nn::Linear>(4, 2);
    auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
    const auto check = [&] {
      std::set<const void*> weights;
      for (int r = 0; r < replicas; ++r) weights.insert(model.replica(r).weight.data_ptr());
      EXPECT_EQ(weights.size(), 1u);
      strategy.run([&] { EXPECT_EQ(variable.value().data_ptr(), variable.components()[0].data_ptr()); });
    };
    check();
    strategy.run([&] { sgd.minimize(model(torch::ones({1, 4})).sum()); });
    check();
    EXPECT_EQ(variable.components().size(), 1u);
    EXPECT_EQ(variable.devices().size(), 1u);
  }
}

TEST_F(CentralStorageTest, EachReplicaHasItsOwnGradient) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  const Variable w(torch::ones({}), {.name = "w"});
  const auto gradients = strategy.run([&] {
    const at::Tensor own = w;
    (own * (replica_id() + 1)).backward();
    return own.grad();
  });
  EXPECT_EQ(gradients[0].item<float>(), 1);
  EXPECT_EQ(gradients[1].item<float>(), 2);
}

TEST_F(CentralStorageTest, VariablesPrintAsTheOneTheyAre) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  EXPECT_EQ(shown(Variable(1.0)), "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>");
}

TEST_F(CentralStorageTest, WritesOfReplicasAreCombinedBeforeTheOneWrite) {
  const auto strategy = central(3);
  const auto scope = strategy.scope();
  const auto written = [&](VariableAggregation aggregation) {
    const Variable variable(torch::full({2}, 10.0), {.aggregation = aggregation});
    const auto seen = strategy.run([&] {
      variable.assign_add(torch::full({2}, 1.0 + replica_id()));
      return variable.read_value();
    });
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(seen[r].equal(variable.components()[0]));
    return variable.read_value()[1].item<float>();
  };
  EXPECT_EQ(written(VariableAggregation::Sum), 16);
  EXPECT_EQ(written(VariableAggregation::Mean), 12);
  EXPECT_EQ(written(VariableAggregation::OnlyFirstReplica), 11);
  EXPECT_THROW(written(VariableAggregation::None), c10::ValueError);
}

TEST_F(CentralStorageTest, NumbersThatDifferBetweenReplicasAreCombined) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  const Variable mean(0.0, {.aggregation = VariableAggregation::Mean});
  strategy.run([&] { mean.assign(replica_id() + 1.0); });
  EXPECT_EQ(mean.read_value().item<float>(), 1.5f);
  strategy.run([&] { replica_id() == 0 ? mean.assign(1.0) : mean.assign(torch::tensor(5.0f)); });
  EXPECT_EQ(mean.read_value().item<float>(), 3.0f);
  const Variable sum(0.0, {.aggregation = VariableAggregation::Sum});
  strategy.run([&] { replica_id() == 0 ? sum.assign_add(0.0) : sum.assign_add(torch::tensor(5.0f)); });
  EXPECT_EQ(sum.read_value().item<float>(), 5.0f);
  EXPECT_THROW(mean.assign(PerReplica<at::Tensor>{torch::tensor(1.0f), torch::tensor(2.0f)}), c10::ValueError);
}

TEST_F(CentralStorageTest, AWrongWriteInReplicasIsReportedWithItsCauseEveryTime) {
  const auto strategy = central(4);
  const auto scope = strategy.scope();
  const Variable variable(torch::zeros({3, 2}), {.aggregation = VariableAggregation::Sum});
  const IndexedSlices missing{torch::tensor({7}), torch::ones({1, 2}), {3, 2}};
  const auto message_of = [&](auto&& write) -> std::string {
    try {
      strategy.run(write);
    } catch (const c10::Error& error) {
      return error.what();
    }
    return "nothing";
  };
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(message_of([&] { variable.assign_add(torch::ones({5})); }),
                HasSubstr("the value must have the variable's shape"));
    EXPECT_THAT(message_of([&] {
                  variable.assign_add(torch::ones({replica_id() + 2, 2}));
                }),
                HasSubstr("the value must have the variable's shape"));
    EXPECT_THAT(message_of([&] { variable.scatter_add(missing); }), HasSubstr("there is no such row: row=7, rows=3"));
    EXPECT_THAT(message_of([&] { variable.scatter_mul(missing); }), HasSubstr("there is no such row: row=7, rows=3"));
  }
  EXPECT_TRUE(variable.components()[0].equal(torch::zeros({3, 2})));
  strategy.run([&] { variable.assign_add(torch::ones({3, 2})); });
  EXPECT_EQ(variable.components()[0].sum().item<float>(), 24) << "and the next run works";
}

TEST_F(CentralStorageTest, WritesByTheThousandNeverMeetAReader) {
  const auto strategy = central(4);
  const auto scope = strategy.scope();
  const Variable counter(torch::zeros({64}), {.aggregation = VariableAggregation::Sum});
  strategy.run([&] {
    for (int i = 1; i <= 200; ++i) {
      counter.assign_add(torch::ones({64}));
      const at::Tensor now = counter.read_value();
      EXPECT_EQ(now.min().item<float>(), 4.0f * static_cast<float>(i));
      EXPECT_EQ(now.max().item<float>(), 4.0f * static_cast<float>(i));
      get_replica_context().all_reduce("sum", torch::ones({}));
    }
  });
}

TEST_F(CentralStorageTest, UpdateIsCalledOnceWithTheOneCopy) {
  const auto strategy = central(3);
  const auto scope = strategy.scope();
  const Variable variable(torch::ones({}));
  int calls = 0;
  strategy.extended().update(variable, [&](at::Tensor copy) {
    const at::NoGradGuard no_grad;
    copy.add_(1);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(variable.read_value().item<float>(), 2);
  EXPECT_EQ(strategy.extended().non_slot_devices({variable}).size(), 1u);
}

TEST_F(CentralStorageTest, ALargeTableIsThereOnce) {
  const auto strategy = central(4);
  const auto scope = strategy.scope();
  constexpr int64_t kBytes = int64_t{160} << 20;
  const int64_t before = resident_bytes();
  auto model = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(kBytes / 256, 64).sparse(true));
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  EXPECT_LT(resident_bytes() - before, kBytes * 3 / 2) << "neither replicas nor the optimizer have one of their own";
  EXPECT_NE(model.replica(3).weight[5][5].item<float>(), 0.0f) << "the values are those of the first";
  const at::Tensor row = model->weight[7].detach().clone();
  strategy.run([&] { adam.minimize(model(torch::tensor({7, 8 + replica_id()}, torch::kLong)).sum()); });
  EXPECT_TRUE(torch::allclose(model.replica(2).weight[7], row - 0.1));
  EXPECT_LT(resident_bytes() - before, kBytes * 3 / 2) << "a step costs what its rows cost";
}

TEST_F(CentralStorageTest, AFailedReplicaLeavesTheParametersWhole) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 3);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  const at::Tensor before = model->weight.detach().clone();
  EXPECT_ANY_THROW(strategy.run([&] {
    const at::Tensor loss = model(torch::ones({1, 3})).sum();
    if (replica_id() == 1) throw std::runtime_error("on purpose");
    sgd.minimize(loss);
  }));
  EXPECT_TRUE(model->weight.equal(before));
  strategy.run([&] { sgd.minimize(model(torch::ones({1, 3})).sum()); });
  EXPECT_TRUE(torch::allclose(model->weight, before - 1)) << "and the next step is a whole one";
}

TEST_F(CentralStorageTest, ATableFromOutsideIsCopiedOnce) {
  const auto strategy = central(4);
  const auto scope = strategy.scope();
  constexpr int64_t kBytes = int64_t{160} << 20;
  const at::Tensor table = torch::ones({kBytes / 256, 64});
  const int64_t before = resident_bytes();
  auto model = module<torch::nn::Embedding>(
      torch::nn::EmbeddingOptions(table.size(0), table.size(1))._weight(table).sparse(true));
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  strategy.run([&] { sgd.minimize(model(torch::tensor({7})).sum()); });
  EXPECT_LT(resident_bytes() - before, kBytes * 3 / 2);
  EXPECT_EQ(table[7][0].item<float>(), 1) << "the tensor outside is not written";
  EXPECT_EQ(model.replica(3).weight[7][0].item<float>(), -1);
}

TEST_F(CentralStorageTest, AnOptimizerThatWasLeftUnconvertedIsFound) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 3);
  std::mutex one_at_a_time;
  std::string error;
  try {
    strategy.run([&] {
      const std::lock_guard lock(one_at_a_time);
      torch::optim::SGD sgd(model->parameters(), 0.1);
      model(torch::ones({1, 3})).sum().backward();
      sgd.step();
    });
  } catch (const c10::ValueError& thrown) {
    error = thrown.what_without_backtrace();
  }
  EXPECT_THAT(error, AllOf(HasSubstr("parameter=weight"), HasSubstr("torch::optim")));
}

TEST_F(CentralStorageTest, ParametersAreNotWrittenByReplicas) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 3);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  const auto error_of = [&](auto&& write) -> std::string {
    try {
      strategy.run([&] {
        const at::NoGradGuard no_grad;
        write();
      });
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "none";
  };
  const auto step = [&] {
    const at::AutoGradMode with_gradients(true);
    sgd.minimize(model(torch::ones({1, 3})).sum());
  };
  EXPECT_THAT(error_of([&] { model->weight.mul_(0.9); }), HasSubstr("parameter=weight, replicas=0, 1 of 2"));
  EXPECT_THAT(error_of([&] {
                model->bias.mul_(0.9);
                step();
              }),
              HasSubstr("parameter=bias"))
      << "before an update";
  EXPECT_THAT(error_of([&] {
                step();
                model->bias.clamp_(-1, 1);
              }),
              HasSubstr("parameter=bias"))
      << "after an update";
  EXPECT_THAT(error_of([&] { model->weight.set_data(torch::zeros({3, 3})); }), HasSubstr("parameter=weight"));
  EXPECT_THAT(error_of([&] {
                if (replica_id() == 1) torch::nn::init::ones_(model->weight);
              }),
              HasSubstr("replicas=1 of 2"));
  EXPECT_EQ(error_of(step), "none") << "the next run works";
  const at::Tensor before = model->weight.detach().clone();
  EXPECT_EQ(error_of([&] {
              get_replica_context().merge_call([&](const Strategy&) {
                const at::NoGradGuard no_grad;
                model->weight.mul_(0.5);
              });
            }),
            "none");
  EXPECT_TRUE(model.replica(1).weight.equal(before * 0.5)) << "a merge function writes once";
}

TEST_F(CentralStorageTest, LoadedValuesReachAllReplicasByBroadcast) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  auto saved = module<torch::nn::Linear>(3, 3);
  for (const bool with_run : {false, true}) {
    std::stringstream file;
    torch::save(saved, file);
    auto model = module<torch::nn::Linear>(3, 3);
    auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
    if (with_run) strategy.run([&] { sgd.minimize(model(torch::ones({1, 3})).sum()); });
    torch::load(model, file);
    model.broadcast();
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(model.replica(r).weight.equal(saved->weight)) << r;
    EXPECT_TRUE(model.replica(1).weight.is_alias_of(model.replica(0).weight));
    strategy.run([&] { sgd.minimize(model(torch::ones({1, 3})).sum()); });
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(torch::allclose(model.replica(r).weight, saved->weight - 1)) << r;
    std::stringstream again;
    torch::save(saved, again);
    torch::serialize::InputArchive archive;
    archive.load_from(again);
    model->load(archive);
    model.broadcast();
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(model.replica(r).weight.equal(saved->weight)) << r;
  }
}

TEST_F(CentralStorageTest, RefusesTablesThatAreWrittenWhenTheyAreRead) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  EXPECT_THROW(module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(4, 2).max_norm(1.0)), c10::NotImplementedError);
}

TEST_F(CentralStorageTest, ReplacedValuesAreStoredOnce) {
  const auto strategy = central(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 3);
  model->weight.set_data(torch::full({3, 3}, 5.0));
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  EXPECT_TRUE(model.replica(1).weight.is_alias_of(model.replica(0).weight));
  EXPECT_EQ(model.replica(1).weight.min().item<float>(), 5);
  model->weight.set_data(torch::zeros({3, 3}, torch::kDouble));
  EXPECT_THROW(strategy.run([] {}), c10::ValueError) << "the dtype of a stored parameter";
}

/// An optimizer that is not known to treat elements alone.
class Unknown : public torch::optim::SGD {
 public:
  using SGD::SGD;
};

TEST_F(CentralStorageTest, OptimizersThatAreNotKnownUpdateOnce) {
  const auto strategy = central(3);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(torch::nn::LinearOptions(3, 1).bias(false));
  auto sgd = optimizer<Unknown>(model, torch::optim::SGDOptions(0.5));
  const at::Tensor before = model->weight.detach().clone();
  for (int step = 1; step <= 2; ++step) {
    strategy.run([&] { sgd.minimize(model(torch::ones({1, 3})).sum()); });
    EXPECT_TRUE(torch::allclose(model->weight, before - 1.5 * step));
  }
}

/// The page's example of reduce has "compute_devices=['CPU:0', 'GPU:0'], parameter_device='CPU:0'".
TEST_F(CentralStorageTest, ReducesWhatACpuAndAGpuReturn) {
  if (list_physical_devices("GPU").empty()) GTEST_SKIP() << "needs a GPU";
  const CentralStorageStrategy strategy({"CPU:0", "GPU:0"}, "CPU:0");
  for (const auto& x : strategy.distribute_dataset(data::range(8).batch(8))) {
    const auto result = strategy.run([](const at::Tensor& val) { return val; }, x);
    EXPECT_TRUE(result[0].is_cpu() && result[1].is_cuda());
    EXPECT_TRUE(strategy.reduce(ReduceOp::Sum, result, std::nullopt).equal(torch::tensor({4, 6, 8, 10})));
    EXPECT_EQ(strategy.reduce(ReduceOp::Sum, result, 0).item<int64_t>(), 28);
  }
}

TEST_F(CentralStorageTest, ComputesOnACpuAndAGpuAtOnce) {
  if (list_physical_devices("GPU").empty()) GTEST_SKIP() << "needs a GPU";
  const CentralStorageStrategy strategy({"CPU:0", "GPU:0"}, "CPU:0");
  const auto scope = strategy.scope();
  const Variable offset(torch::ones({}), {.trainable = false});
  auto model = module<torch::nn::Linear>(4, 2);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.25);
  const at::Tensor before = model->weight.detach().clone();
  for (int step = 1; step <= 3; ++step) {
    strategy.run([&] {
      const at::Tensor own = offset;
      sgd.minimize((model(torch::ones({1, 4}, own.options())) * own).sum());
    });
    EXPECT_TRUE(torch::allclose(model->weight, before - 0.5 * step));
    EXPECT_TRUE(torch::allclose(model.replica(1).weight.cpu(), before - 0.5 * step));
  }
}

/// A table in host memory that is mapped into the address space of the GPU.
TEST_F(CentralStorageTest, AGpuReadsRowsOfATableInPlace) {
  if (list_physical_devices("GPU").empty()) GTEST_SKIP() << "needs a GPU";
  const CentralStorageStrategy strategy({"GPU:0"}, "CPU:0");
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(1 << 20, 64).sparse(true));
  auto adagrad = optimizer<torch::optim::Adagrad>(model, 0.1);
  ASSERT_TRUE(model->weight.is_cuda());
  const at::Tensor row = model->weight[77].detach().cpu();
  for (int step = 0; step < 3; ++step) {
    strategy.run([&] {
      const at::Tensor ids = torch::tensor({77, 9}, torch::kLong).cuda();
      adagrad.minimize(model(ids).sum());
    });
  }
  EXPECT_GT((row - model->weight[77].detach().cpu()).min().item<float>(), 0.1f);
}

}  // namespace
}  // namespace lockstep::tests
