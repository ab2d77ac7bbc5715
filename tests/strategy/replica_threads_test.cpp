#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using tests::replica_id;

constexpr int kReplicas = 3;

class ReplicaThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override { set_logical_devices("CPU", kReplicas); }
  void TearDown() override { reset_logical_devices(); }
};

at::Tensor sum_of_ones() { return get_replica_context().all_reduce("sum", at::ones({4})); }

void sleep_randomly() {
  thread_local std::mt19937 random{std::random_device{}()};
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

TEST_F(ReplicaThreadsTest, ErrorOfOneReplicaFreesTheOthersAndKeepsItsType) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  for (int failing = 0; failing < kReplicas; ++failing) {
    try {
      strategy.run([&] {
        LOCKSTEP_CHECK_VALUE(replica_id() != failing, "no luck");
        sum_of_ones();
      });
      FAIL() << "the error must reach the caller";
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("no luck"));
      EXPECT_THAT(error.what(), HasSubstr("in replica " + std::to_string(failing)));
    }
    ASSERT_TRUE(last_replica_failure().has_value());
    EXPECT_EQ(last_replica_failure()->replica, failing);
  }
  EXPECT_EQ(strategy.run(sum_of_ones)[0][0].item<float>(), kReplicas) << "the strategy is as good as new";
  EXPECT_FALSE(last_replica_failure().has_value());
}

TEST_F(ReplicaThreadsTest, AnyExceptionReachesTheCallerAsItIs) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  EXPECT_THROW(strategy.run([] {
    if (replica_id() == 2) throw std::out_of_range("mine");
    sum_of_ones();
  }),
               std::out_of_range);
  EXPECT_EQ(last_replica_failure()->replica, 2);
  EXPECT_THROW(strategy.run([] { throw 5; }), int);
}

TEST_F(ReplicaThreadsTest, ErrorsOfLibTorchKeepTheirBacktrace) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  try {
    strategy.run([] { TORCH_CHECK(replica_id() != 1, "the user's own error"); });
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the user's own error"));
    EXPECT_THAT(error.what(), HasSubstr("frame #0"));
  }
}

/// Throws on one rank inside a collective, so that the others fail because of it.
TEST_F(ReplicaThreadsTest, TheCauseIsThrownAndNotItsConsequence) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  for (int i = 0; i < 50; ++i) {
    try {
      strategy.run([&] {
        int mine = 0;
        detail::merge_rendezvous(detail::Access::impl(strategy), replica_id(), "test", &mine, typeid(int),
                                 [](c10::ArrayRef<void*>) {
                                   if (replica_id() == 2) throw std::invalid_argument("the cause");
                                 });
      });
      FAIL();
    } catch (const std::exception& error) {
      ASSERT_STREQ(error.what(), "the cause") << "try " << i;
    }
  }
}

TEST_F(ReplicaThreadsTest, ErrorInAMergeReachesTheCaller) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  EXPECT_THROW(
      strategy.run([] { get_replica_context().merge_call([](const Strategy&) { throw std::domain_error("merge"); }); }),
      std::domain_error);
}

TEST_F(ReplicaThreadsTest, DifferentCollectivesAreAnErrorOnAll) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  EXPECT_THROW(strategy.run([] {
    const ReplicaContext context = get_replica_context();
    if (replica_id() == 1) return context.all_gather(at::ones({4}), 0);
    return context.all_reduce("sum", at::ones({4}));
  }),
               CollectiveError);
  EXPECT_THROW(strategy.run([] {
    const ReplicaContext context = get_replica_context();
    return context.all_reduce(replica_id() == 0 ? "sum" : "mean", at::ones({4}));
  }),
               CollectiveError);
}

TEST_F(ReplicaThreadsTest, ReplicaThatReturnsEarlyIsAnErrorOnTheOthers) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  for (int early = 0; early < kReplicas; ++early) {
    EXPECT_THROW(strategy.run([&] { return replica_id() == early ? at::ones({4}) : sum_of_ones(); }), CollectiveError);
  }
}

TEST_F(ReplicaThreadsTest, DifferentNumbersOfMergesAreAnError) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  EXPECT_THROW(strategy.run([] {
    for (int i = 0; i <= replica_id(); ++i) get_replica_context().merge_call([](const Strategy&) {});
  }),
               CollectiveError);
}

// What LibTorch's own functions do, whose names depend on its version.
void set_cpu_autocast(bool on) { c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::AutocastCPU, !on); }
bool has_cpu_autocast() { return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU); }

TEST_F(ReplicaThreadsTest, ThreadLocalStateIsTheCallers) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  const auto all = [&](auto&& query) {
    const PerReplica<bool> answers = strategy.run(query);
    return std::all_of(answers.begin(), answers.end(), [](bool yes) { return yes; });
  };
  const auto grad_enabled = [] { return torch::GradMode::is_enabled(); };
  EXPECT_TRUE(all(grad_enabled));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(all([] { return !torch::GradMode::is_enabled(); }));
    EXPECT_TRUE(all([] { return !(torch::ones({1}).requires_grad_() * 2).requires_grad(); }));
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(all([] { return torch::ones({1}).is_inference(); }));
  }
  set_cpu_autocast(true);
  EXPECT_TRUE(all([] { return at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type() == at::kBFloat16; }));
  at::autocast::clear_cache();
  set_cpu_autocast(false);
  EXPECT_TRUE(all(grad_enabled)) << "nothing is left behind";
  EXPECT_TRUE(all([] { return !has_cpu_autocast(); }));
}

/// The random numbers that each replica draws in one run; they do not depend on timing.
std::vector<at::Tensor> draw(const Strategy& strategy) {
  return strategy.local_results(strategy.run([] {
    sleep_randomly();
    const at::Tensor normal = torch::randn({8});
    sleep_randomly();
    return torch::cat({normal, torch::dropout(torch::ones({32}), 0.5, /*train=*/true)});
  }));
}

TEST_F(ReplicaThreadsTest, RandomNumbersFollowSeedAndReplicaAndNotTime) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  torch::manual_seed(7);
  const auto first = draw(strategy);
  const auto second = draw(strategy);
  for (int replica = 1; replica < kReplicas; ++replica) EXPECT_FALSE(at::equal(first[0], first[replica]));
  for (int replica = 0; replica < kReplicas; ++replica) EXPECT_FALSE(at::equal(first[replica], second[replica]));
  for (int repeat = 0; repeat < 20; ++repeat) {
    torch::manual_seed(7);
    const auto again = draw(strategy);
    const auto after = draw(strategy);
    for (int replica = 0; replica < kReplicas; ++replica) {
      EXPECT_TRUE(at::equal(again[replica], first[replica]));
      EXPECT_TRUE(at::equal(after[replica], second[replica]));
    }
  }
  torch::manual_seed(8);
  EXPECT_FALSE(at::equal(draw(strategy)[0], first[0]));
}

TEST_F(ReplicaThreadsTest, SameSeedSameNumbersUnderAnotherStrategyOfTheSameSize) {
  torch::manual_seed(3);
  const auto first = draw(tests::mirrored(kReplicas));
  torch::manual_seed(3);
  const auto second = draw(tests::mirrored(kReplicas));
  for (int replica = 0; replica < kReplicas; ++replica) EXPECT_TRUE(at::equal(first[replica], second[replica]));
}

TEST_F(ReplicaThreadsTest, EachReplicaHasItsShareOfTheCores) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  const int before = at::get_num_threads();
  const int share = detail::Access::impl(strategy).threads_per_replica();
  const PerReplica<int> threads = strategy.run([] { return at::get_num_threads(); });
  for (int number : threads) EXPECT_EQ(number, share);
  EXPECT_EQ(at::get_num_threads(), before) << "the caller has its own number back";
}

TEST_F(ReplicaThreadsTest, RunsFromSeveralThreadsTakeTurns) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  const auto caller = [&](float value) {
    for (int i = 0; i < 100; ++i) {
      const auto sums = strategy.run([&] {
        if (inside.fetch_add(1) >= kReplicas) overlapped = true;
        const at::Tensor sum = get_replica_context().all_reduce("sum", at::full({2}, value));
        get_replica_context().all_reduce("sum", sum);
        inside.fetch_sub(1);
        return sum;
      });
      ASSERT_EQ(sums[0][0].item<float>(), value * kReplicas);
    }
  };
  std::thread other(caller, 2.0f);
  caller(1.0f);
  other.join();
  EXPECT_FALSE(overlapped);
}

TEST_F(ReplicaThreadsTest, ReplicasOfOneRunAreDifferentThreads) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  const auto ids = strategy.run([] { return std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id()) << "replica 0 runs on the caller's thread";
  EXPECT_NE(ids[1], ids[2]);
  EXPECT_EQ(strategy.run([] { return std::this_thread::get_id(); })[1], ids[1]) << "the threads persist";
}

TEST_F(ReplicaThreadsTest, ThousandStrategiesComeAndGo) {
  for (int i = 0; i < 1000; ++i) {
    const MirroredStrategy strategy = tests::mirrored(kReplicas);
    if (i % 100 == 0) {
      ASSERT_EQ(strategy.run(sum_of_ones)[0][0].item<float>(), kReplicas);
    }
  }
}

std::atomic<int> num_ended_threads{0};

/// Counts the end of the thread that it is a variable of.
struct CountsThreadEnd {
  ~CountsThreadEnd() { ++num_ended_threads; }
};

TEST_F(ReplicaThreadsTest, SleepingThreadsEndWithTheStrategy) {
  auto strategy = std::make_unique<MirroredStrategy>(tests::mirrored(kReplicas));
  strategy->run([] {
    thread_local CountsThreadEnd counts;
    return static_cast<void>(counts);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(num_ended_threads, 0);
  strategy.reset();
  EXPECT_EQ(num_ended_threads, kReplicas - 1) << "replica 0 is on the calling thread";
}

TEST_F(ReplicaThreadsTest, HandlesKeepTheStrategyAlive) {
  std::optional<Strategy> copy;
  {
    const MirroredStrategy strategy = tests::mirrored(kReplicas);
    copy = strategy;
  }
  EXPECT_EQ(copy->run(sum_of_ones)[1][0].item<float>(), kReplicas);
}

TEST_F(ReplicaThreadsTest, AutocastAroundRunsUsesPresentWeights) {
  const MirroredStrategy strategy = tests::mirrored(kReplicas);
  std::vector<at::Tensor> weights;
  for (int i = 0; i < kReplicas; ++i) weights.push_back(at::ones({4, 4}).requires_grad_());
  set_cpu_autocast(true);
  for (int value = 1; value <= 3; ++value) {
    {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& weight : weights) weight.fill_(value);
    }
    const auto products = strategy.local_results(strategy.run([&] {
      const at::Tensor product = at::linear(at::ones({1, 4}), weights[replica_id()]);
      EXPECT_EQ(product.scalar_type(), at::kBFloat16);
      return product;
    }));
    for (const at::Tensor& product : products) EXPECT_EQ(product[0][0].item<float>(), 4.0F * value);
  }
  set_cpu_autocast(false);
  at::autocast::clear_cache();
}

}  // namespace
}  // namespace lockstep
