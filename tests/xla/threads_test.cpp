// What threads that are no replicas may do with tensors of XLA devices while replicas compute.

#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/device/carried_state.h"
#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/lower/value_checks.h"
#include "lockstep/xla/tensor/lazy_storage.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using ::testing::HasSubstr;

const auto kThreadDoubles = torch::TensorOptions().dtype(torch::kDouble);

class XlaThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_DEVICES(kNumDevices); }
};

/// A tensor of ones, made without LibTorch's dispatcher, whose frames hide races from ThreadSanitizer.
torch::Tensor sent_directly(XlaDevice& device, double value) {
  return wrap(upload(torch::full({2, 3}, value, kThreadDoubles), device), device);
}

/// Calls `work` on a thread again and again until it is destroyed.
class Beside {
 public:
  template <class Work>
  explicit Beside(Work work)
      : thread_([this, work] {
          while (!stops_) {
            work();
            ++times_;
          }
        }) {
    while (times_ == 0) std::this_thread::yield();
  }
  ~Beside() {
    stops_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stops_{false};
  std::atomic<int> times_{0};
  std::thread thread_;
};

/// Runs steps and checks their values and the number of programs.
void expect_undisturbed(const Strategy& strategy) {
  auto scope = strategy.scope();
  const Variable v(torch::zeros({3}, kThreadDoubles), {.aggregation = VariableAggregation::Sum});
  const auto x = split_batch(strategy, torch::ones({4, 3}, kThreadDoubles));
  const auto step = [&](const torch::Tensor& own) {
    const torch::Tensor w = v.value().detach().clone().requires_grad_();
    ((own * w).sin().sum() + w.sum()).backward();
    v.assign_add(w.grad() * 0 + 1);
    return own.sum();
  };
  strategy.run(step, x);
  const Counters before = counters();
  for (int i = 2; i < 150; ++i) {
    const auto sums = strategy.local_results(strategy.run(step, x));
    EXPECT_EQ(sums[0].item<double>(), 12.0 / double(sums.size()));
    EXPECT_EQ(v.read_value()[0].item<double>(), i * double(sums.size()));
  }
  EXPECT_LE(counters().compiles - before.compiles, 2) << "those of the read, not of another thread";
}

TEST_F(XlaThreadsTest, OthersMayMoveTensorsToTheDevice) {
  for (const int replicas : {1, 2}) {
    const TPUStrategy strategy = make_strategy({replicas, 1});
    const auto device = split_batch(strategy, torch::ones({4})).at(0).device();
    const Beside uploads([&] {
      for (int64_t size = 1; size < 6; ++size) {
        const auto sent = torch::full({size, 2}, double(size)).t().to(device, torch::kDouble);
        EXPECT_EQ(sent.cpu().sum().item<double>(), 2.0 * double(size * size));
      }
    });
    expect_undisturbed(strategy);
  }
}

TEST_F(XlaThreadsTest, OthersMayReadAndDropResults) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::ones({4, 3}, kThreadDoubles));
  const auto result = strategy.local_results(strategy.run([](const torch::Tensor& own) { return own * 2; }, x));
  const Beside reads([&] {
    torch::Tensor copy = result[1];
    EXPECT_EQ(copy.cpu().sum().item<double>(), 12);
    const torch::Tensor part = copy.detach()[0];
    EXPECT_EQ(part.cpu().sum().item<double>(), 6);
  });
  expect_undisturbed(strategy);
}

TEST_F(XlaThreadsTest, ThreadsMayComputeOnDifferentDevices) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::ones({4, 3}, kThreadDoubles));
  const auto compute = [&](int replica) {
    torch::Tensor sum = x.at(replica) * 0;
    for (int i = 0; i < 20; ++i) {
      sum = sum + x.at(replica).cos() * (i % 4);
      EXPECT_NEAR(sum.sum().item<double>(), 6 * std::cos(1.0) * (i / 4 * 6 + (i % 4) * (i % 4 + 1) / 2), 1e-9);
    }
  };
  std::thread other([&] { compute(1); });
  compute(0);
  other.join();
}

TEST_F(XlaThreadsTest, PrefetchedBatchesDoNotDisturbRuns) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto device = split_batch(strategy, torch::ones({4})).at(0).device();
  const auto rows = data::range(200).map([&](int64_t i) {
    // Moved by hand, as users do.
    return torch::full({2}, double(i), kThreadDoubles).to(device).cpu();
  });
  const auto step = [](const torch::Tensor& own) { return (own + own).sum(); };
  double total = 0;
  int64_t compiles = 0;
  int64_t i = 0;
  for (const auto& batch : strategy.distribute_dataset(rows.batch(2), {.per_replica_buffer_size = 4})) {
    total += strategy.reduce("sum", strategy.run(step, batch)).item<double>();
    if (i++ == 2) compiles = counters().compiles;
  }
  EXPECT_EQ(total, 4.0 * 199 * 100);
  EXPECT_EQ(counters().compiles, compiles);
}

// LibTorch's threads for backward passes hold gradients a little longer than the caller.
TEST_F(XlaThreadsTest, GradientsThatAreDroppedDoNotChangeTheProgram) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::ones({4, 3}, kThreadDoubles));
  const auto step = [](const torch::Tensor& own) {
    const torch::Tensor w = own.detach().clone().requires_grad_();
    const torch::Tensor scores = (w * 3).tanh().sum();
    return torch::autograd::grad({scores}, {w})[0].pow(2).sum().detach();
  };
  std::vector<std::unique_ptr<Beside>> load;
  for (int i = 0; i < 3; ++i) load.push_back(std::make_unique<Beside>([] { std::this_thread::yield(); }));
  strategy.run(step, x);
  const Counters before = counters();
  for (int i = 0; i < 2000; ++i) strategy.run(step, x);
  EXPECT_EQ(counters().compiles, before.compiles);
}

TEST_F(XlaThreadsTest, UploadsAreNeverPending) {
  XlaDevice& device = device_of({0});
  const auto x = sent_directly(device, 1);
  const Beside uploads([&] {
    const auto sent = sent_directly(device, 2);
    const auto written = wrap(fill(0, at::kDouble, {2, 3}), device, LazyStorage::Listing::Blank);
    write(written, read(sent));
    EXPECT_EQ(to_cpu(written).sum().item<double>(), 12);
  });
  for (int i = 0; i < 200; ++i) {
    const auto y = wrap(unary(UnaryOp::Negate, read(x)), device);
    EXPECT_EQ(to_cpu(y).sum().item<double>(), -6);
  }
}

TEST_F(XlaThreadsTest, OthersMayDropTensorsWhileTheyAreComputed) {
  XlaDevice& device = device_of({0});
  const auto x = sent_directly(device, 1);
  std::mutex mutex;
  std::vector<torch::Tensor> dropped;
  const Beside drops([&] {
    std::vector<torch::Tensor> taken;
    const std::lock_guard<std::mutex> lock(mutex);
    std::swap(taken, dropped);
  });
  for (int i = 0; i < 200; ++i) {
    const auto y = wrap(unary(UnaryOp::Negate, read(x)), device);
    {
      const std::lock_guard<std::mutex> lock(mutex);
      for (int copy = 0; copy < 8; ++copy) {
        dropped.push_back(wrap(unary(UnaryOp::Tanh, read(y)), device));
        dropped.push_back(wrap(read(x), device));
      }
    }
    execute_pending(device);
    EXPECT_EQ(to_cpu(y).sum().item<double>(), -6);
  }
}

TEST_F(XlaThreadsTest, OthersMayReadResultsWhileProgramsCheckTheirValues) {
  const TPUStrategy strategy = make_strategy({2, 1});
  set_value_checks(ValueChecks::All);
  auto scope = strategy.scope();
  const Variable v(torch::zeros({6, 3}, kThreadDoubles), {.aggregation = VariableAggregation::Sum});
  const auto indices = split_batch(strategy, torch::tensor({0, 2, 4, 5}));
  const auto step = [&](const torch::Tensor& rows) {
    const auto part = v.value().detach().index_select(0, rows * 1);
    v.assign_add(torch::ones_like(v.value()));
    return part;
  };
  auto pure = strategy.pure(step);
  const auto result = strategy.local_results(strategy.run(step, indices));
  {
    const Beside reads([&] {
      EXPECT_EQ(result[0].cpu().sum().item<double>(), 0);
      EXPECT_EQ(result[1].cpu().sum().item<double>(), 0);
    });
    for (int call = 0; call < 150; ++call) strategy.run(step, indices);
    for (int call = 0; call < 300; ++call) pure(indices);
    EXPECT_TRUE(pure.is_replayed()) << pure.why_not();
  }
  set_value_checks(ValueChecks::FirstRuns);
  EXPECT_EQ(v.read_value()[0][0].item<double>(), 2 * 451);
}

/// The hyperbolic tangent, computed without LibTorch's dispatcher.
torch::Tensor tanh_of(const torch::Tensor& tensor) {
  return wrap(unary(UnaryOp::Tanh, read(tensor)), storage_of(tensor)->device());
}

TEST_F(XlaThreadsTest, ReplicasOfAPureStepMayReadValuesAtTheSameTime) {
  const TPUStrategy strategy = make_strategy({4, 1});
  const auto x = split_batch(strategy, torch::zeros({8, 5}, kThreadDoubles));
  auto pure = strategy.pure([](const torch::Tensor& own) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(to_cpu(tanh_of(own)).sum().item<double>(), 0);
    return own.sum();
  });
  for (int call = 0; call < 40; ++call) pure(x);
  EXPECT_THAT(pure.why_not(), HasSubstr("reads values"));
}

TEST_F(XlaThreadsTest, OthersMayDropTensorsThatAReplayedStepWouldWrite) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::zeros({4, 6}, kThreadDoubles));
  std::mutex mutex;
  std::vector<torch::Tensor> kept;
  const Beside drops([&] {
    std::vector<torch::Tensor> now;
    const std::lock_guard<std::mutex> lock(mutex);
    now.swap(kept);
  });
  const int64_t replays = counters().replays;
  for (int round = 0; round < 60; ++round) {
    auto pure = strategy.pure([&](const torch::Tensor& own) {
      torch::Tensor outlives = tanh_of(own);
      const auto result = wrap(unary(UnaryOp::Negate, read(outlives)), storage_of(own)->device());
      const std::lock_guard<std::mutex> lock(mutex);
      kept.push_back(std::move(outlives));
      return result;
    });
    for (int call = 0; call < 6; ++call) EXPECT_EQ(pure(x)[0].sum().item<double>(), 0);
  }
  // A tensor that is dropped before the program is executed changes the program: not every round has replays.
  EXPECT_GT(counters().replays, replays);
}

TEST_F(XlaThreadsTest, OthersMayReadTensorsThatAreSentOrPadded) {
  for (const int partitions : {1, 2}) {
    XlaDevice& device = partitions == 1 ? device_of({0}) : device_of({0, 1});
    std::mutex mutex;
    torch::Tensor shared = sent_directly(device, 1);
    const auto present = [&] {
      const std::lock_guard<std::mutex> lock(mutex);
      return shared;
    };
    const Beside reads([&] {
      const torch::Tensor own = present();
      for (int i = 0; i < 4; ++i) EXPECT_EQ(to_cpu(own).sum().item<double>(), 6);
    });
    for (int round = 0; round < 400; ++round) {
      torch::Tensor fresh = sent_directly(device, 1);
      const Value value = storage_of(fresh)->value();
      {
        const std::lock_guard<std::mutex> lock(mutex);
        shared = std::move(fresh);
      }
      ensure_uploaded(*value);
      for (int turn = 0; turn < 4 && partitions == 1; ++turn) {
        ensure_padded(*value, {4 + turn, 3});
        if (turn % 2 == 0) ensure_uploaded(*value);
      }
    }
  }
}

TEST_F(XlaThreadsTest, BackwardPassesOfOtherRunsDoNotBelongToARun) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::ones({4, 3}, kThreadDoubles));
  const auto elsewhere = torch::ones({2}, kThreadDoubles).to(device_of({3}).torch_device());
  std::mutex mutex;
  std::string error = "nothing was thrown";
  // A replica of another strategy, whose backward pass LibTorch runs on a thread of its own.
  const auto other_replica = [&](const torch::Tensor& own) {
    const lockstep::detail::CarriedStateScope scope({});
    const torch::Tensor leaf = elsewhere.detach().requires_grad_();
    torch::Tensor sum = (leaf * 2).sum();
    // Caught on the thread that throws: ThreadSanitizer does not see how libstdc++ counts references to exceptions.
    sum.register_hook([&](const torch::Tensor&) {
      try {
        own.exp();
      } catch (const ContextError& caught) {
        const std::lock_guard<std::mutex> lock(mutex);
        error = caught.what();
      }
    });
    sum.backward();
  };
  strategy.run(
      [&](const torch::Tensor& own) {
        if (get_replica_context().replica_id_in_sync_group() == 0) std::thread([&] { other_replica(own); }).join();
        return own.sum();
      },
      x);
  const std::lock_guard<std::mutex> lock(mutex);
  EXPECT_THAT(error, HasSubstr("a thread that is no replica"));
}

TEST_F(XlaThreadsTest, OthersMustNotCompute) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::ones({4, 3}, kThreadDoubles));
  const auto error_in_run = [&](auto work) {
    std::string message = "nothing was thrown";
    strategy.run(
        [&](const torch::Tensor& own) {
          if (get_replica_context().replica_id_in_sync_group() == 0) {
            std::thread([&] {
              try {
                work(own);
              } catch (const ContextError& error) {
                message = error.what();
              }
            }).join();
          }
          return own.sum();
        },
        x);
    return message;
  };
  EXPECT_THAT(error_in_run([](const torch::Tensor& own) { own.exp(); }), HasSubstr("aten::exp"));
  EXPECT_THAT(error_in_run([](const torch::Tensor& own) { own.exp(); }), HasSubstr("a thread that is no replica"));
  EXPECT_THAT(error_in_run([](const torch::Tensor& own) { own.clone().add_(1); }), HasSubstr("no replica"));
  EXPECT_THAT(error_in_run([](const torch::Tensor& own) { own.detach().zero_(); }), HasSubstr("no replica"));
  EXPECT_THAT(error_in_run([](const torch::Tensor& own) {
                const auto leaf = torch::ones({2}, torch::TensorOptions(torch::kCPU)).requires_grad_();
                auto sum = (leaf * 2).sum();
                sum.register_hook([&](const torch::Tensor&) { own.exp(); });
                sum.backward();
              }),
              HasSubstr("no replica"))
      << "a backward pass of a thread that is no replica";
  EXPECT_EQ(error_in_run([](const torch::Tensor& own) { own.cpu().sum(); }), "nothing was thrown");
}

}  // namespace
}  // namespace lockstep::xla::test
