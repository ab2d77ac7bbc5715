#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategies/mirrored.h"
#include "lockstep/strategy/strategies/multi_worker_mirrored.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable.h"
#include "lockstep/train/checkpoint_manager.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/test_folder.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NcclStrategyTest : public NcclReplicasTest {
 protected:
  static bool uses_nccl(const Strategy& strategy) {
    const auto& impl = detail::Access::impl(strategy);
    return impl.group(0).impl()->uses_nccl();
  }

  static at::Tensor all_reduce(const CommunicationOptions& options = {}) {
    const auto context = get_replica_context();
    const auto mine = at::full({3}, context.replica_id_in_sync_group() + 1.0, at::device(kCard).dtype(at::kFloat));
    return context.all_reduce("sum", mine, options);
  }
};

TEST_F(NcclStrategyTest, SeveralCardsTakeNccl) {
  MirroredStrategy strategy({"GPU:0", "GPU:1"});
  EXPECT_TRUE(uses_nccl(strategy));
  EXPECT_STREQ(strategy.extended().cross_device_ops().name(), "NcclAllReduce");
  const auto sums = strategy.run([] { return all_reduce(); });
  for (const auto& sum : sums) EXPECT_TRUE(sum.eq(3).all().item<bool>());
  const auto exact = strategy.run([] { return all_reduce({.deterministic = true}); });
  for (const auto& sum : exact) EXPECT_TRUE(sum.eq(3).all().item<bool>());
}

TEST_F(NcclStrategyTest, OneGpuAndOtherOperationsDoNot) {
  EXPECT_FALSE(uses_nccl(MirroredStrategy({"GPU:0"})));
  EXPECT_FALSE(uses_nccl(MirroredStrategy({"CPU:0"})));
  EXPECT_FALSE(uses_nccl(MirroredStrategy({"GPU:0", "GPU:1"}, std::make_shared<ReductionToOneDevice>())));
}

TEST_F(NcclStrategyTest, OptionsOfTheStrategyChoose) {
  const auto of = [](const CommunicationOptions& options) {
    return MirroredStrategy({"GPU:0", "GPU:1"}, nullptr, options);
  };
  EXPECT_TRUE(uses_nccl(of({.implementation = "nccl"})));
  for (const CommunicationOptions& options :
       {CommunicationOptions{.implementation = "ring"}, CommunicationOptions{.deterministic = true}}) {
    const MirroredStrategy strategy = of(options);
    EXPECT_FALSE(uses_nccl(strategy));
    EXPECT_STREQ(strategy.extended().cross_device_ops().name(), "ReductionToOneDevice");
  }
  EXPECT_THROW(MirroredStrategy({"CPU:0", "CPU:1"}, nullptr, {.implementation = "nccl"}), c10::ValueError);
}

TEST_F(NcclStrategyTest, MeansOfHalfDoNotOverflow) {
  MirroredStrategy strategy({"GPU:0", "GPU:1"});
  const auto means = strategy.run([] {
    return get_replica_context().all_reduce("mean", at::full({3}, 40000.0, at::device(kCard).dtype(at::kHalf)));
  });
  for (const auto& mean : means) EXPECT_TRUE(mean.eq(40000).all().item<bool>());
}

TEST_F(NcclStrategyTest, TheGroupOfOneWorkerFollowsItsOptions) {
  const auto of = [](const CommunicationOptions& options) {
    return MultiWorkerMirroredStrategy(nullptr, options, {"GPU:0", "GPU:1"});
  };
  EXPECT_TRUE(uses_nccl(of({})));
  EXPECT_TRUE(uses_nccl(of({.implementation = "nccl"})));
  EXPECT_FALSE(uses_nccl(of({.implementation = "ring"})));
  EXPECT_FALSE(uses_nccl(of({.deterministic = true})));
}

TEST_F(NcclStrategyTest, NcclAllReduceOutsideOfReplicas) {
  const NcclAllReduce nccl;
  const auto make = [](double value) { return at::full({4}, value, at::device(kCard).dtype(at::kFloat)); };
  const PerReplica<at::Tensor> value(std::vector<at::Tensor>{make(1), make(4)});
  const auto mean = nccl.reduce("mean", value, Destinations(value));
  ASSERT_EQ(mean.size(), 2);
  for (const auto& copy : mean) EXPECT_TRUE(copy.eq(2.5).all().item<bool>());
  EXPECT_NE(mean[0].data_ptr(), mean[1].data_ptr());
  const PerReplica<at::Tensor> integers(std::vector<at::Tensor>{make(1).to(at::kInt), make(4).to(at::kInt)});
  EXPECT_TRUE(nccl.reduce("mean", integers, Destinations("CPU:0"))[0].eq(2.5).all().item<bool>());
  EXPECT_TRUE(nccl.reduce("max", integers, Destinations("GPU:0"))[0].eq(4).all().item<bool>());
  const auto batch = nccl.batch_reduce("sum", {{value, Destinations("GPU:0")}, {value, Destinations(value)}});
  EXPECT_TRUE(batch[1][1].eq(5).all().item<bool>());
}

TEST_F(NcclStrategyTest, AFailedRunIsAnErrorAndTheNextOneWorks) {
  std::optional<MirroredStrategy> strategy;
  {
    const Variables faults{{"NCCL_STANDIN_ERROR_AT", "2"}};
    strategy.emplace(std::vector<std::string>{"GPU:0", "GPU:1"});
    const auto step = [] {
      for (int i = 0; i < 20; ++i) {
        all_reduce();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      return all_reduce();
    };
    try {
      strategy->run(step);
      ADD_FAILURE() << "it went on";
    } catch (const CollectiveError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("all_reduce"));
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("unhandled system error"));
    }
  }
  const auto sums = strategy->run([] { return all_reduce(); });
  for (const auto& sum : sums) EXPECT_TRUE(sum.eq(3).all().item<bool>());
}

TEST_F(NcclStrategyTest, ASumThatFailsAfterTheRunIsInNoCheckpoint) {
  const Variables faults{{"NCCL_STANDIN_HANG_AT", "1"}};
  const MirroredStrategy strategy({"GPU:0", "GPU:1"});
  const auto scope = strategy.scope();
  Variable total(at::zeros({3}),
                 {.synchronization = VariableSynchronization::OnRead, .aggregation = VariableAggregation::Sum});
  const TestFolder folder;
  CheckpointManager manager(Checkpoint({{"total", total}}), folder.path());
  manager.save(0);  // allocates, and loads kernels, which may wait for the GPU
  strategy.run([&] { total.assign(all_reduce({.timeout_seconds = 1})); });
  try {
    manager.save(1);
    ADD_FAILURE() << "it was saved";
  } catch (const CollectiveError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("was not done on device 0 within 1000 ms"));
  }
  manager.wait();
  EXPECT_EQ(manager.latest(), 0);
}

TEST_F(NcclStrategyTest, AReductionThatFailsAfterItsCallIsInNoCheckpoint) {
  const Variables faults{{"NCCL_STANDIN_HANG_AT", "1"}, {"LOCKSTEP_COLLECTIVE_TIMEOUT", "1"}};
  const MirroredStrategy strategy({"GPU:0", "GPU:1"});
  const auto scope = strategy.scope();
  Variable total(at::zeros({3}));
  const TestFolder folder;
  CheckpointManager manager(Checkpoint({{"total", total}}), folder.path());
  manager.save(0);
  const auto ones = strategy.run([] { return at::ones({3}, at::device(at::kCUDA)); });
  {
    const DeviceScope card("GPU:0");  // on the CPU it would be summed there
    total.assign(strategy.reduce("sum", ones));
  }
  try {
    manager.save(1);
    ADD_FAILURE() << "it was saved";
  } catch (const CollectiveError& error) {
    EXPECT_THAT(error.what_without_backtrace(), AllOf(HasSubstr("call=checkpoint"), HasSubstr("within 1000 ms")));
  }
  manager.wait();
  EXPECT_EQ(manager.latest(), 0);
}

}  // namespace
}  // namespace lockstep::tests
