#include "lockstep/strategy/optimizer/replica_check.h"

#include <cstdlib>
#include <mutex>

#include <torch/torch.h>

#include "lockstep/base/log.h"
#include "lockstep/comm/diagnostics/recorder.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using detail::CheckSchedule;
using tests::mirrored;
using tests::replica_id;

/// Sets LOCKSTEP_CHECK_REPLICAS for as long as it lives.
class CheckReplicas {
 public:
  explicit CheckReplicas(const char* value) { setenv("LOCKSTEP_CHECK_REPLICAS", value, 1); }
  ~CheckReplicas() { unsetenv("LOCKSTEP_CHECK_REPLICAS"); }
};

template <class F>
std::string message_of(F&& fn) {
  try {
    fn();
  } catch (const CollectiveError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CheckScheduleTest, ComparesAtPowersOfTwoAndEveryThousandthStep) {
  const CheckSchedule schedule;
  std::vector<uint64_t> due;
  uint64_t compared = 0;
  for (uint64_t step = 1; step <= 5000; ++step) {
    if (!schedule.is_due(compared, step)) continue;
    due.push_back(step);
    compared = step;
  }
  EXPECT_EQ(due, (std::vector<uint64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1024, 2000, 2048, 3000, 4000, 4096,
                                        5000}));
  EXPECT_TRUE(schedule.is_due(5, 9)) << "step 8 was in the same run";
  EXPECT_FALSE(schedule.is_due(8, 8));
}

TEST(CheckScheduleTest, FollowsTheEnvironment) {
  {
    const CheckReplicas every_third("3");
    const CheckSchedule schedule = CheckSchedule::from_environment();
    EXPECT_FALSE(schedule.is_due(0, 2));
    EXPECT_TRUE(schedule.is_due(0, 3));
    EXPECT_FALSE(schedule.is_due(3, 5));
    EXPECT_TRUE(schedule.is_due(3, 7));
  }
  for (const char* word : {"off", "0"}) {
    const CheckReplicas off(word);
    EXPECT_FALSE(CheckSchedule::from_environment().is_due(0, 1)) << word;
  }
  for (const char* word : {"on", "-1", "2.5", "1x"}) {
    const CheckReplicas wrong(word);
    EXPECT_THROW(CheckSchedule::from_environment(), c10::ValueError) << word;
  }
}

TEST(HashTensorsTest, BitsDtypeAndShapeCountStridesDoNot) {
  const auto hash = [](const at::Tensor& tensor) { return detail::hash_tensors({{"", tensor}})[0]; };
  const at::Tensor tensor = at::arange(24, at::kFloat).reshape({4, 6});
  EXPECT_EQ(hash(tensor), hash(tensor.clone()));
  EXPECT_EQ(hash(tensor), hash(tensor.t().contiguous().t()));
  EXPECT_NE(hash(tensor), hash(tensor.reshape({6, 4})));
  EXPECT_NE(hash(tensor), hash(tensor.view(at::kInt)));
  EXPECT_NE(hash(at::zeros({2})), hash(-at::zeros({2}))) << "the sign of zero is a bit";
  const at::Tensor nan = at::full({3}, std::nan(""));
  EXPECT_EQ(hash(nan), hash(nan.clone())) << "equal bits";
  EXPECT_EQ(hash(tensor), hash(tensor.neg()._neg_view()));
}

class ReplicaComparisonTest : public tests::ReplicasTest {
 protected:
  void SetUp() override {
    tests::ReplicasTest::SetUp();
    log::set_sink([this](log::Level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      logged_ += std::string(line) + "\n";
    });
  }
  void TearDown() override {
    log::set_sink({});
    tests::ReplicasTest::TearDown();
  }
  std::string logged() {
    const std::lock_guard lock(mutex_);
    return logged_;
  }

 private:
  std::mutex mutex_;
  std::string logged_;
};

/// An optimizer that is not known to be elementwise, so every replica has its state. Its replica 1 adds to its
/// averages.
struct DriftingAdam : torch::optim::Adam {
  using Adam::Adam;
  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss = Adam::step(std::move(closure));
    const bool drifts = tests::replica_id() == 1;
    for (auto& [key, state] : state_) {
      if (drifts) static_cast<torch::optim::AdamParamState&>(*state).exp_avg_sq().add_(1);
    }
    return loss;
  }
};

TEST_F(ReplicaComparisonTest, StateOfOptimizersIsCompared) {
  const auto strategy = mirrored(3);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  auto adam = optimizer<DriftingAdam>(model, torch::optim::AdamOptions(0.1));
  const std::string error = message_of([&] { strategy.run([&] { adam.minimize(model(at::ones({2, 4})).sum()); }); });
  EXPECT_TRUE(has(error, "exp_avg_sq of weight (float32[2, 4]): replica 1 has other bits than replica 0, 2")) << error;
  EXPECT_FALSE(has(error, "parameter weight")) << error;
  EXPECT_TRUE(has(error, "after step 1, not compared before")) << error;
}

/// State of a class of the user.
struct CountingState : torch::optim::OptimizerCloneableParamState<CountingState> {
  at::Tensor mean;
  void serialize(torch::serialize::InputArchive& archive) override { archive.read("mean", mean); }
  void serialize(torch::serialize::OutputArchive& archive) const override { archive.write("mean", mean); }
};

/// LibTorch's key of a parameter is its address: as text, or in later versions the address itself.
template <class States>
auto& state_at(States& states, const at::Tensor& parameter) {
  if constexpr (std::is_same_v<typename States::key_type, std::string>) {
    return states[c10::str(parameter.unsafeGetTensorImpl())];
  } else {
    return states[parameter.unsafeGetTensorImpl()];
  }
}

struct MeanOptimizer : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const at::NoGradGuard no_grad;
    for (auto& group : param_groups_) {
      for (at::Tensor& parameter : group.params()) {
        auto state = std::make_unique<CountingState>();
        state->mean = parameter.grad() * (replica_id() + 1.0);
        state_at(state_, parameter) = std::move(state);
        parameter.sub_(parameter.grad());
      }
    }
    return {};
  }
};

TEST_F(ReplicaComparisonTest, StateOfTheUsersClassIsCompared) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  auto own = optimizer<MeanOptimizer>(model, torch::optim::SGDOptions(0.1));
  const std::string error = message_of([&] { strategy.run([&] { own.minimize(model(at::ones({2, 4})).sum()); }); });
  EXPECT_TRUE(has(error, "mean of weight")) << error;
}

TEST_F(ReplicaComparisonTest, VariablesAreNamed) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  const Variable weight(1.0, {.name = "weight"});
  auto sgd = optimizer<torch::optim::SGD>(std::vector{weight}, 0.1);
  const std::string error = message_of([&] {
    strategy.run([&] {
      sgd.minimize(weight * 2);
      if (replica_id() == 1) weight.value().data().add_(1);
    });
  });
  EXPECT_TRUE(has(error, "parameter weight")) << error;
}

TEST_F(ReplicaComparisonTest, CanBeTurnedOff) {
  const CheckReplicas off("off");
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  auto adam = optimizer<DriftingAdam>(model, torch::optim::AdamOptions(0.1));
  strategy.run([&] { adam.minimize(model(at::ones({2, 4})).sum()); });
}

/// A group whose sums are wrong on the last rank: a fault of an engine.
class WrongGroup final : public comm::GroupImpl {
 public:
  explicit WrongGroup(comm::Group right) : right_(std::move(right)) {}

  int rank() const override { return right_.rank(); }
  int size() const override { return right_.size(); }
  const std::string& name() const override { return right_.name(); }

  void do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                     const CommunicationOptions& options) override {
    const auto sums = right_.all_reduce(inputs, op, options);
    for (size_t i = 0; i < sums.size(); ++i) {
      outputs[i].copy_(rank() == size() - 1 && sums[i].is_floating_point() ? sums[i] * 1.0001 : sums[i]);
    }
  }
  std::vector<at::Tensor> do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                               const CommunicationOptions& options) override {
    return right_.all_reduce(inputs, op, options);
  }
  void do_reduce(at::TensorList, at::TensorList, ReduceOp, int, const CommunicationOptions&) override {}
  void do_broadcast(at::TensorList, at::TensorList, int, const CommunicationOptions&) override {}
  std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                        const CommunicationOptions& options) override {
    return right_.all_gather(inputs, dim, options);
  }
  std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                    const CommunicationOptions& options) override {
    return right_.gather(inputs, dim, root, options);
  }
  void do_reduce_scatter(const at::Tensor&, const at::Tensor&, ReduceOp, const CommunicationOptions&) override {}
  std::vector<at::Tensor> do_all_to_all(at::TensorList inputs, const comm::RowCounts& sent, comm::RowCounts& received,
                                        const CommunicationOptions& options) override {
    return right_.impl()->do_all_to_all(inputs, sent, received, options);
  }
  std::shared_ptr<comm::GroupImpl> do_within(const std::shared_ptr<comm::GroupImpl>&,
                                             std::shared_ptr<const comm::RankGroups> groups) override {
    return right_.within(*groups).impl();
  }
  void do_barrier(const CommunicationOptions& options) override { right_.barrier(options); }

 private:
  comm::Group right_;
};

class WrongEngineImpl final : public detail::StrategyImpl {
 public:
  explicit WrongEngineImpl(int replicas)
      : StrategyImpl(devices_for(replicas), nullptr, [](std::vector<comm::Group> groups, const auto&) {
          for (comm::Group& group : groups) group = comm::Group(std::make_shared<WrongGroup>(group));
          return groups;
        }) {}
  const char* type_name() const override { return "WrongEngine"; }
  bool distributes_values() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return ops_; }
  void update_config(RuntimeConfig&) const override {}

 private:
  static std::vector<LogicalDevice> devices_for(int replicas) {
    const std::vector<LogicalDevice> all = list_logical_devices("CPU");
    return {all.begin(), all.begin() + replicas};
  }
  ReductionToOneDevice ops_;
};

/// Not known to be elementwise, so every replica updates its own copy.
struct ReplicatedSgd : torch::optim::SGD {
  using SGD::SGD;
};

TEST_F(ReplicaComparisonTest, AFaultOfTheEngineIsFound) {
  for (const int replicas : {2, 3}) {
    const Strategy strategy(std::make_shared<WrongEngineImpl>(replicas));
    const auto scope = strategy.scope();
    auto model = module<torch::nn::Linear>(4, 2);
    auto sgd = optimizer<ReplicatedSgd>(model, torch::optim::SGDOptions(0.1));
    const std::string error = message_of([&] { strategy.run([&] { sgd.minimize(model(at::ones({2, 4})).sum()); }); });
    EXPECT_TRUE(has(error, "parameter weight")) << error;
    EXPECT_TRUE(has(error, "a fault of the engine")) << error;
  }
}

// The usual mistake: one optimizer over what the module shows outside of `run`, the first replica's parameters.
TEST_F(ReplicaComparisonTest, AnOptimizerOfTheFirstReplicaAloneIsFound) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  std::mutex one_at_a_time;
  const std::string error = message_of([&] {
    strategy.run([&] {
      model(at::ones({2, 4})).sum().backward();
      const std::lock_guard lock(one_at_a_time);
      sgd.step();
    });
  });
  EXPECT_TRUE(has(error, "parameter weight")) << error;
  EXPECT_TRUE(has(error, "lockstep::optimizer<O>(model")) << error;
}

TEST_F(ReplicaComparisonTest, ParametersWithoutGradientsMayDiffer) {
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto average = module<torch::nn::Linear>(4, 2);
  for (auto& parameter : average->parameters()) parameter.set_requires_grad(false);
  strategy.run([&] {
    if (replica_id() == 0) average->weight.add_(1);
  });
  EXPECT_EQ(logged(), "");
}

TEST_F(ReplicaComparisonTest, AWriteIsWarnedAboutAlsoWithoutComparison) {
  const CheckReplicas off("off");
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  for (int i = 0; i < 2; ++i) {
    strategy.run([&] {
      const at::NoGradGuard no_grad;
      model->bias.add_(replica_id());
    });
  }
  const std::string text = logged();
  EXPECT_TRUE(has(text, "bias")) << text;
  EXPECT_EQ(text.find("[module]"), text.rfind("[module]")) << text;
}

TEST_F(ReplicaComparisonTest, ALaterRunOfADifferenceIsFoundToo) {
  const CheckReplicas every("1");
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 2);
  const auto write = [&](double on_second) {
    strategy.run([&] {
      const at::NoGradGuard no_grad;
      model->bias.add_(replica_id() == 0 ? 0.5 : on_second);
    });
  };
  write(0.5);
  write(0.5);
  EXPECT_TRUE(has(message_of([&] { write(0.25); }), "after run 3, equal after run 2"));
}

TEST_F(ReplicaComparisonTest, CollectivesAfterTheFunctionOfAReplicaNameItsLatestCall) {
  const CheckReplicas every("1");
  const auto strategy = mirrored(2);
  const auto scope = strategy.scope();
  auto model = module<torch::nn::BatchNorm1d>(4);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.01);
  const auto records_of_run = [&](auto&& fn) {
    const comm::Recorder& recorder = detail::Access::impl(strategy).rendezvous().recorder();
    const size_t before = recorder.entries(0).size();
    strategy.run(fn);
    const std::vector<comm::Record> all = recorder.entries(0);
    return std::vector<comm::Record>(all.begin() + static_cast<ptrdiff_t>(before), all.end());
  };
  const auto records = records_of_run([&] { sgd.minimize(model(at::ones({2, 4})).sum()); });
  size_t comparisons = 0;
  for (const comm::Record& record : records) {
    EXPECT_TRUE(record.site) << record.describe();
    if (has(record.describe(), "comparison of replicas(state of optimizer 0, ")) ++comparisons;
  }
  EXPECT_GE(comparisons, 1u);
  const auto without_call = records_of_run([&] { model(at::ones({2, 4})); });
  EXPECT_FALSE(without_call.empty());
  for (const comm::Record& record : without_call) {
    EXPECT_FALSE(record.site) << "this run has no call; " << record.describe();
  }
}

TEST_F(ReplicaComparisonTest, RunsOfSeveralThreadsTakeTurnsWithTheComparison) {
  const CheckReplicas every("1");
  const auto strategy = mirrored(2);
  auto model = [&] {
    const auto scope = strategy.scope();
    return module<torch::nn::Linear>(4, 2);
  }();
  auto sgd = [&] {
    const auto scope = strategy.scope();
    return optimizer<torch::optim::SGD>(model, 0.01);
  }();
  const auto train = [&] {
    for (int i = 0; i < 50; ++i) strategy.run([&] { sgd.minimize(model(at::ones({2, 4})).sum()); });
  };
  std::thread other(train);
  train();
  other.join();
}

}  // namespace
}  // namespace lockstep
