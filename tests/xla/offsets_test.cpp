// Slices at positions that change from step to step are one program.

#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/log.h"
#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/tensor/lazy_storage.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::indexing::Slice;

constexpr int kRows = 12;
constexpr int kRuns = 8;

class OffsetsTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_DEVICES(2); }
};

torch::Tensor table(int64_t columns) { return torch::randn({kRows, columns}, torch::kDouble); }

/// Runs `read(x, i)` and its gradient for many i; returns how many programs were compiled.
template <class Read>
int64_t compiles_of(int64_t columns, Read&& read) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = table(columns);
  const Counters before = counters();
  for (int i = 0; i < kRuns; ++i) {
    const auto step = [&](const torch::Tensor& whole) {
      const auto leaf = whole.detach().requires_grad_();
      const auto part = read(leaf, i);
      (part * part).sum().backward();
      return std::tuple{part.detach().clone(), leaf.grad()};
    };
    const auto [part, gradient] = strategy.run(step, x);
    const auto [expected, expected_gradient] = step(x);
    EXPECT_TRUE(torch::allclose(strategy.experimental_local_results(part)[0].cpu(), expected)) << i;
    EXPECT_TRUE(torch::allclose(strategy.experimental_local_results(gradient)[0].cpu(), expected_gradient)) << i;
  }
  EXPECT_GE(counters().recompiles - before.recompiles, 1);
  EXPECT_LE(counters().backward_waits - before.backward_waits, 2) << "a step with another offset is known";
  return counters().compiles - before.compiles;
}

// The number of columns differs, so that no case finds the program of another.
TEST_F(OffsetsTest, OfSelectAreArguments) {
  EXPECT_LE(compiles_of(3, [](const torch::Tensor& x, int i) { return x[i]; }), 2);
  EXPECT_LE(compiles_of(14, [](const torch::Tensor& x, int i) { return x.select(1, i); }), 2);
}

TEST_F(OffsetsTest, OfSlicesAreArguments) {
  EXPECT_LE(compiles_of(5, [](const torch::Tensor& x, int i) { return x.narrow(0, i, 3); }), 2);
  EXPECT_LE(compiles_of(15, [](const torch::Tensor& x, int i) { return x.slice(1, i, i + 4); }), 2);
  EXPECT_LE(compiles_of(16, [](const torch::Tensor& x, int i) { return x.index({Slice(i, i + 4, 2)}); }), 2);
}

TEST_F(OffsetsTest, OfRollsAreArguments) {
  EXPECT_LE(compiles_of(6, [](const torch::Tensor& x, int i) { return x.roll(i, 0); }), 2);
  EXPECT_LE(compiles_of(7, [](const torch::Tensor& x, int i) { return x.roll({-i, i}, {1, 0}); }), 2);
  EXPECT_LE(compiles_of(8, [](const torch::Tensor& x, int i) { return x.roll(i * 5); }), 2);
}

TEST_F(OffsetsTest, OfWritesAreArguments) {
  EXPECT_LE(compiles_of(9,
                        [](const torch::Tensor& x, int i) {
                          auto copy = x * 2;
                          copy[i] = 7;
                          copy.narrow(0, i + 1, 2).mul_(3);
                          return copy;
                        }),
            2);
}

TEST_F(OffsetsTest, SeveralInAStepAreKeptApart) {
  EXPECT_LE(compiles_of(10, [](const torch::Tensor& x, int i) { return x[0] * x[i + 1] + x[i + 4]; }), 2);
}

TEST_F(OffsetsTest, OfReplicasMayDiffer) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = table(11);
  const Counters before = counters();
  for (int i = 0; i < 3; ++i) {
    const auto rows = strategy.run(
        [&](const torch::Tensor& whole) {
          const auto row = whole[4 * get_replica_context().replica_id_in_sync_group() + i] * 1;
          return std::tuple{row, get_replica_context().all_reduce("sum", row)};
        },
        x);
    const auto own = strategy.experimental_local_results(std::get<0>(rows));
    const auto sums = strategy.experimental_local_results(std::get<1>(rows));
    for (int replica = 0; replica < 2; ++replica) {
      EXPECT_TRUE(torch::equal(own[replica].cpu(), x[4 * replica + i]));
      EXPECT_TRUE(torch::allclose(sums[replica].cpu(), x[i] + x[4 + i]));
    }
  }
  EXPECT_EQ(counters().executions - before.executions, 3) << "one program for both replicas";
  EXPECT_EQ(counters().compiles - before.compiles, 1);
}

TEST_F(OffsetsTest, LastBatchesArePaddedAsBefore) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::randn({8, 13}, torch::kDouble);
  const auto run = [&](int64_t rows, int i) {
    const auto part = strategy.run(
        [&](const torch::Tensor& batch) { return batch.select(1, i).exp() + batch[i].sum(); }, x.narrow(0, 0, rows));
    const auto batch = x.narrow(0, 0, rows);
    EXPECT_TRUE(
        torch::allclose(strategy.experimental_local_results(part)[0].cpu(), batch.select(1, i).exp() + batch[i].sum()))
        << rows << " rows, " << i;
  };
  for (int i = 0; i < 4; ++i) run(8, i);
  const Counters before = counters();
  for (int i = 0; i < 4; ++i) run(5, i);
  EXPECT_EQ(counters().padded_executions - before.padded_executions, 4);
  EXPECT_EQ(counters().compiles - before.compiles, 0);
}

TEST_F(OffsetsTest, PaddedBatchesDoNotWaitForBackwardThreads) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto weight = split_batch(strategy, torch::ones({21, 1}, torch::kDouble)).at(0);
  const auto train = [&](int64_t rows) {
    strategy.run(
        [&](const torch::Tensor& batch) {
          const auto leaf = weight.detach().requires_grad_();
          batch.mm(leaf).pow(2).sum().backward();
          weight.sub_(leaf.grad(), 1e-6);
        },
        torch::randn({rows, 21}, torch::kDouble));
  };
  for (int i = 0; i < 4; ++i) train(9);
  const Counters before = counters();
  for (int64_t rows = 2; rows < 8; ++rows) train(rows);
  EXPECT_EQ(counters().padded_executions - before.padded_executions, 6);
  EXPECT_EQ(counters().backward_waits - before.backward_waits, 0);
}

TEST_F(OffsetsTest, OfATensorThatStaysOnTheDeviceAreForgotten) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto data = split_batch(strategy, torch::arange(400, torch::kDouble)).at(0);
  for (int i = 0; i < 40; ++i) {
    const auto part = strategy.run([&] { return data.narrow(0, i, 7).clone(); });
    EXPECT_EQ(strategy.experimental_local_results(part)[0].cpu()[0].item<double>(), i);
  }
  EXPECT_LE(storage_of(data)->views_of_run().size(), 1U);
}

TEST_F(OffsetsTest, APureStepSaysThatANumberChanges) {
  const TPUStrategy strategy = make_strategy({1, 1});
  int i = 0;
  auto step = strategy.pure([&](const torch::Tensor& x) { return x[i++ % kRows] * 2; });
  for (int run = 0; run < 5; ++run) step(table(17));
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), AllOf(HasSubstr("number changes"), HasSubstr("aten::")));
}

TEST_F(OffsetsTest, SizesThatChangeAreCountedAndNamed) {
  std::mutex mutex;
  std::vector<std::string> lines;
  log::set_sink([&](log::Level level, std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (level == log::Level::Warn) lines.emplace_back(line);
  });
  const TPUStrategy strategy = make_strategy({1, 1});
  const Counters before = counters();
  const auto x = table(18);
  for (int i = 2; i < 7; ++i) {
    strategy.run([&](const torch::Tensor& whole) { return whole.narrow(0, 2, i).cumsum(0).sum(); }, x);
  }
  log::set_sink({});
  EXPECT_EQ(counters().recompiles - before.recompiles, 4);
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("one step has been compiled 4 times"), HasSubstr("aten::"))));
}

/// Collects warnings while it lives.
class Warnings {
 public:
  Warnings() {
    log::set_sink([this](log::Level level, std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (level == log::Level::Warn) lines_.emplace_back(line);
    });
  }
  ~Warnings() { log::set_sink({}); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  std::vector<std::string> about_steps() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> lines;
    for (const std::string& line : lines_) {
      if (line.find("have been compiled as") != std::string::npos) lines.push_back(line);
    }
    return lines;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(OffsetsTest, StepsWithLoopsThatChangeAreNamedOnce) {
  const TPUStrategy strategy = make_strategy({1, 1});
  Warnings warnings;
  for (int turns = 1; turns < 20; ++turns) {
    strategy.run(
        [&](torch::Tensor x) {
          x = (x + 1).sin();
          for (int i = 0; i < turns; ++i) x = x.cos();
          return x.sum();
        },
        table(22));
  }
  EXPECT_THAT(warnings.about_steps(), ElementsAre(AllOf(HasSubstr("as 8 different programs"), HasSubstr("aten::cos"))));
}

TEST_F(OffsetsTest, ProgramsOfOneRunAreNotNamed) {
  const TPUStrategy strategy = make_strategy({1, 1});
  Warnings warnings;
  const auto step = [](torch::Tensor x) {
    for (int i = 0; i < 30; ++i) x = x.sin();
    for (int metric = 0; metric < 12; ++metric) {
      torch::Tensor value = x;
      for (int i = 0; i < metric; ++i) value = value.tanh();
      EXPECT_LE(value.abs().max().item<double>(), 1);
    }
    return x.sum();
  };
  for (int run = 0; run < 3; ++run) strategy.run(step, table(24));
  EXPECT_THAT(warnings.about_steps(), ElementsAre());
}

TEST_F(OffsetsTest, RunsThatReadValuesAndChangeAreNamed) {
  const TPUStrategy strategy = make_strategy({1, 1});
  Warnings warnings;
  for (int turns = 1; turns < 12; ++turns) {
    const auto step = [&](torch::Tensor x) {
      for (int i = 0; i < 30; ++i) x = x.cos();
      for (int i = 0; i < turns; ++i) x = x.tanh();
      EXPECT_LE(x.abs().max().item<double>(), 1);
      return x.exp().sum();
    };
    strategy.run(step, table(25));
  }
  EXPECT_THAT(warnings.about_steps(), ElementsAre(HasSubstr("as 8 different programs")));
}

TEST_F(OffsetsTest, DifferentStepsAreNotNamed) {
  const TPUStrategy strategy = make_strategy({1, 1});
  Warnings warnings;
  const auto x = table(23);
  const auto run = [&](auto&& function) { strategy.run([&](const torch::Tensor& own) { return function(own); }, x); };
  for (int i = 0; i < 2; ++i) {
    run([](const torch::Tensor& a) { return a.tan().exp().floor(); });
    run([](const torch::Tensor& a) { return a.sinh().abs().log1p(); });
    run([](const torch::Tensor& a) { return a.softmax(1).prod(); });
    run([](const torch::Tensor& a) { return a.tanh().cumsum(0).sqrt(); });
    run([](const torch::Tensor& a) { return a.atan().mean(1).round(); });
    run([](const torch::Tensor& a) { return a.sigmoid().amax(0).neg(); });
    run([](const torch::Tensor& a) { return a.relu().t().mm(a); });
    run([](const torch::Tensor& a) { return a.erf().std(0).ceil(); });
    run([](const torch::Tensor& a) { return a.square().amin(1).exp(); });
  }
  EXPECT_THAT(warnings.about_steps(), ElementsAre());
}

}  // namespace
}  // namespace lockstep::xla::test
