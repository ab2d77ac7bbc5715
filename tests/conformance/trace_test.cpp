// Under every strategy the time of a step is divided into phases, and a trace shows them for each replica.

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/base/trace/trace_writer.h"
#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"
#include "tests/support/test_folder.h"

namespace lockstep::conformance {
namespace {

using trace::Phase;
using trace::PhaseTimes;

constexpr TpuSize kTraceSizes[] = {{2, 1}};

class TraceConformanceTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  void TearDown() override { trace::finish_trace(); }

  tests::TestFolder folder_;
};

/// Makes steps of a small network; each takes some milliseconds on every replica.
class TracedTraining {
 public:
  explicit TracedTraining(const NamedStrategy& named)
      : named_(named),
        strategy_(named.make()),
        scope_(strategy_.scope()),
        model_(module<torch::nn::Linear>(64, 8)),
        optimizer_(optimizer<torch::optim::SGD>(model_, 0.01)) {}

  const Strategy& strategy() const { return strategy_; }

  void step(std::chrono::milliseconds forward = {}) {
    const auto x = split(named_, torch::ones({4 * named_.replicas, 64}));
    strategy_.run(
        [&](const torch::Tensor& rows) {
          std::this_thread::sleep_for(forward);
          optimizer_.minimize(average_loss(model_->forward(rows).square().sum(1), 4 * named_.replicas));
        },
        x);
  }

 private:
  NamedStrategy named_;
  Strategy strategy_;
  Scope scope_;
  Module<torch::nn::Linear> model_;
  Optimizer<torch::optim::SGD> optimizer_;
};

double sum(const PhaseTimes& times) {
  double seconds = 0;
  for (const double of_phase : times.seconds) seconds += of_phase;
  return seconds;
}

TEST_P(TraceConformanceTest, PhasesOfAStepAreItsTime) {
  TracedTraining training(GetParam());
  training.step();
  const trace::PhaseCounting counting;
  training.step();
  double best = 0;
  // Other programs may take the cores away between two phases. All workers make as many steps.
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto before = trace::phase_times();
    const auto begin = std::chrono::steady_clock::now();
    constexpr int kSteps = 3;
    for (int i = 0; i < kSteps; ++i) training.step(std::chrono::milliseconds(5));
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const auto after = trace::phase_times();
    double share = 1;
    for (int replica = 0; replica < GetParam().local; ++replica) {
      const auto r = static_cast<size_t>(replica);
      EXPECT_EQ(after[r].steps - before[r].steps, kSteps);
      EXPECT_GE(after[r][Phase::Forward] - before[r][Phase::Forward], kSteps * 0.005);
      EXPECT_GT(after[r][Phase::Backward], before[r][Phase::Backward]);
      EXPECT_GT(after[r][Phase::Update], before[r][Phase::Update]);
      const double counted = sum(after[r]) - sum(before[r]);
      EXPECT_LE(counted, wall);
      share = std::min(share, counted / wall);
    }
    best = std::max(best, share);
  }
  EXPECT_GE(best, 0.8);
}

TEST_P(TraceConformanceTest, ATraceHasThePhasesOfEachReplica) {
  TracedTraining training(GetParam());
  training.step();
  const int64_t first = trace::num_steps(0) + 1;
  training.strategy().trace({.first_step = first, .last_step = first + 1, .folder = folder_.path()});
  for (int i = 0; i < 4; ++i) training.step();
  trace::finish_trace();
  const int worker = GetParam().first / GetParam().local;
  std::ifstream in(folder_ / ("trace_worker" + std::to_string(worker) + ".json"));
  ASSERT_TRUE(in.good());
  std::map<std::string, int> found;
  std::set<std::string> threads;
  for (std::string line; std::getline(in, line);) {
    const auto value = [&](const std::string& key) {
      const size_t begin = line.find("\"" + key + "\":") + key.size() + 3;
      return line.substr(begin, line.find_first_of(",}", begin) - begin);
    };
    if (line.find("\"thread_name\"") != std::string::npos) threads.insert(line.substr(line.find("\"args\"")));
    if (line.find("\"ph\":\"X\"") == std::string::npos) continue;
    if (value("cat") == "\"kernel\"") continue;  // of a GPU, which belong to no step
    ++found[value("name")];
    const int64_t step = std::stoll(value("step"));
    EXPECT_TRUE(step == first || step == first + 1) << line;
  }
  const int each = 2 * GetParam().local;
  EXPECT_EQ(found["\"run\""], each);
  EXPECT_EQ(found["\"forward\""], each);
  EXPECT_EQ(found["\"backward\""], each);
  EXPECT_EQ(found["\"update\""], each);
  if (GetParam().is_traced()) {
    EXPECT_GE(found["\"execute\""], 2);
  }
  if (!GetParam().is_traced() && GetParam().replicas > 1) {
    EXPECT_GE(found["\"optimizer step\""] + found["\"bucket\""] + found["\"all_reduce\""], each);
  }
  for (int replica = 0; replica < GetParam().local; ++replica) {
    EXPECT_THAT(threads, ::testing::Contains(
                             ::testing::HasSubstr("\"replica " + std::to_string(GetParam().first + replica) + "\"")));
  }
}

INSTANTIATE_TEST_SUITE_P(AllStrategies, TraceConformanceTest, ::testing::ValuesIn(all_strategies(kTraceSizes)),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
