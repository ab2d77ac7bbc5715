// The differences from TensorFlow that docs/differences.md lists without golden cases.

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/shown.h"

namespace lockstep {
namespace {

using tests::shown;

class TensorFlowDifferences : public ::testing::Test {
 protected:
  void SetUp() override { set_logical_devices("CPU", 2); }
  void TearDown() override { reset_logical_devices(); }

  const std::vector<std::string> two{"CPU:0", "CPU:1"};
};

TEST_F(TensorFlowDifferences, GatherRefusesSlicesOfEveryReplica) {
  const MirroredStrategy strategy(two);
  const IndexedSlices slices{torch::tensor({0}), at::ones({1, 2}), {3, 2}};
  const PerReplica<IndexedSlices> values{slices, slices};
  EXPECT_THROW(strategy.gather(values, 0), c10::NotImplementedError);
  EXPECT_THROW(strategy.gather(slices, 0), c10::NotImplementedError);
}

TEST_F(TensorFlowDifferences, SyncOnReadScopeHoldsForEveryRead) {
  const MirroredStrategy strategy(two);
  auto scope = strategy.scope();
  const Variable v(0.0, {.synchronization = VariableSynchronization::OnRead, .aggregation = VariableAggregation::Sum});
  std::vector<std::vector<float>> seen(2);
  strategy.run([&] {
    const int replica = get_replica_context().replica_id_in_sync_group();
    v.assign(at::scalar_tensor(replica + 1.0f));
    const SyncOnReadScope together;
    seen[replica] = {at::Tensor(v).item<float>(), (v + 10).item<float>(), v.value().item<float>(),
                     v.read_value().item<float>()};
  });
  const std::vector<float> combined{3, 13, 3, 3};
  EXPECT_EQ(seen, (std::vector<std::vector<float>>{combined, combined}));
}

TEST_F(TensorFlowDifferences, AStrategyInsideTheScopeOfTheDefaultOneMakesVariables) {
  const MirroredStrategy strategy(two);
  auto outer = Strategy(detail::default_strategy().shared_from_this()).scope();
  auto scope = strategy.scope();
  const Variable v(1.0);
  EXPECT_EQ(v.components().size(), 2u);
  EXPECT_EQ(v.strategy(), strategy);
}

TEST_F(TensorFlowDifferences, NamesAreAsTheProgramGaveThem) {
  const Variable v(1.0, {.name = "w"});
  EXPECT_EQ(v.name(), "w");
  EXPECT_EQ(shown(v), "<tf.Variable 'w:0' shape=() dtype=float32, numpy=1.0>");
}

TEST_F(TensorFlowDifferences, AVariableOfAWholeNumberIsAFloat) {
  EXPECT_EQ(Variable(1).dtype(), at::kFloat);
  EXPECT_EQ(Variable(1, {.dtype = at::kInt}).dtype(), at::kInt);
}

TEST_F(TensorFlowDifferences, NumbersOfOneReplicaAreBareValues) {
  const auto [a, b] = OneDeviceStrategy("CPU:0").run([] { return std::tuple{1, 2.5}; });
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(a)>, PerReplica<int>>);
  EXPECT_TRUE(a.is_bare());
  const int one = a;
  EXPECT_EQ(one, 1);
  EXPECT_EQ(b + 0.5, 3.0);
}

TEST_F(TensorFlowDifferences, AVectorIsANestInFromTensorSlices) {
  const auto rows = data::from_tensor_slices(std::vector<at::Tensor>{at::arange(3), at::arange(3)}).collect();
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].size(), 2u);
}

}  // namespace
}  // namespace lockstep
