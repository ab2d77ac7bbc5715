// LOCKSTEP_XLA_CACHE: the second process loads what the first compiled.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "tests/support/child_processes.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using tests::ChildProcess;

constexpr const char* kIsChild = "LOCKSTEP_TEST_PROGRAM_CACHE_CHILD";

/// The program of the child processes; nothing in the test process.
TEST(ProgramCacheChild, Trains) {
  if (std::getenv(kIsChild) == nullptr) return;
  LOCKSTEP_NEEDS_DEVICES(2);
  const TPUStrategy strategy = make_strategy({2, 1});
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(4, 3);
  const auto adam = optimizer<torch::optim::AdamW>(model, torch::optim::AdamWOptions(0.01));
  for (int i = 0; i < 3; ++i) {
    const auto loss = strategy.run(
        [&](const torch::Tensor& x) {
          const auto mean = model->forward(x).square().mean();
          adam.minimize(mean);
          return mean.detach();
        },
        split_batch(strategy, torch::randn({4, 4})));
    std::cout << "\nloss " << std::hexfloat << strategy.reduce("sum", loss).item<float>() << std::defaultfloat;
  }
  const Counters all = counters();
  std::cout << "\ncompiled " << (all.compiles > 0 ? "some" : "none") << ", loaded "
            << (all.loaded_programs > 0 ? "some" : "none") << ", in all " << all.compiles + all.loaded_programs
            << std::endl;
}

class ProgramCacheTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_PLUGIN(); }

  ChildProcess start(const std::vector<std::string>& variables = {}) {
    std::vector<std::string> command{"env",
                                     "-u",
                                     "GTEST_OUTPUT",
                                     "-u",
                                     "GTEST_FILTER",
                                     std::string(kIsChild) + "=1",
                                     "LOCKSTEP_XLA_CACHE=" + folder().string()};
    command.insert(command.end(), variables.begin(), variables.end());
    command.insert(command.end(), {tests::this_program(), "--gtest_filter=ProgramCacheChild.Trains"});
    return ChildProcess(std::move(command), files_.path() / ("output" + std::to_string(++processes_)));
  }

  /// The lines that the child printed about itself.
  static std::string ended(ChildProcess child) {
    EXPECT_TRUE(child.wait_until(std::chrono::steady_clock::now() + std::chrono::minutes(4)));
    EXPECT_EQ(child.outcome(), "exit 0") << child.output();
    const std::string output = child.output();
    const size_t begin = output.find("\nloss "), end = output.find(", in all ");
    EXPECT_NE(begin, std::string::npos) << output;
    return begin == std::string::npos ? output : output.substr(begin, output.find('\n', end) - begin);
  }

  static std::string losses(const std::string& lines) { return lines.substr(0, lines.find("\ncompiled")); }

  fs::path folder() const { return files_.path() / "programs"; }

  std::vector<fs::path> stored() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder())) found.push_back(entry.path());
    return found;
  }

  tests::TestFolder files_;
  int processes_ = 0;
};

TEST_F(ProgramCacheTest, TheSecondProcessLoads) {
  const std::string first = ended(start());
  EXPECT_THAT(first, HasSubstr("compiled some, loaded none"));
  EXPECT_FALSE(stored().empty());
  const std::string second = ended(start());
  EXPECT_THAT(second, HasSubstr("compiled none, loaded some"));
  EXPECT_EQ(losses(second), losses(first));
}

TEST_F(ProgramCacheTest, DamagedProgramsAreCompiledAgain) {
  const std::string first = ended(start());
  for (const fs::path& file : stored()) {
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<long>(fs::file_size(file) / 2))
        .write("damaged!", 8);
  }
  const std::string second = ended(start());
  EXPECT_THAT(second, HasSubstr("compiled some, loaded none"));
  EXPECT_EQ(losses(second), losses(first));
  EXPECT_THAT(ended(start()), HasSubstr("compiled none, loaded some")) << "they were stored again";
}

TEST_F(ProgramCacheTest, FlagsInAFileBelongToTheProgram) {
  const std::string flags = (files_.path() / "flags").string();
  std::ofstream(flags) << "--xla_backend_optimization_level=0\n";
  EXPECT_THAT(ended(start({"XLA_FLAGS=" + flags})), HasSubstr("compiled some, loaded none"));
  EXPECT_THAT(ended(start({"XLA_FLAGS=" + flags})), HasSubstr("compiled none, loaded some"));
  std::ofstream(flags) << "--xla_backend_optimization_level=1\n";
  EXPECT_THAT(ended(start({"XLA_FLAGS=" + flags})), HasSubstr("compiled some, loaded none"));
}

TEST_F(ProgramCacheTest, AFolderThatBecomesUnusableDoesNotEndARun) {
  LOCKSTEP_NEEDS_DEVICES(1);
  const TPUStrategy strategy = make_strategy({1, 1});
  const std::string file = ::testing::TempDir() + "/lockstep_no_folder";
  std::ofstream(file) << "no folder";
  setenv("LOCKSTEP_XLA_CACHE", file.c_str(), 1);
  const auto sum = strategy.run([](const torch::Tensor& x) { return x.erf().sum(); }, torch::zeros({67}));
  EXPECT_EQ(strategy.local_results(sum)[0].item<float>(), 0);
  unsetenv("LOCKSTEP_XLA_CACHE");
}

TEST_F(ProgramCacheTest, ProcessesAtOnceWithOtherOptionsShareAFolder) {
  ChildProcess a = start(), b = start(), c = start({"XLA_FLAGS=--xla_backend_optimization_level=1"});
  const std::string of_a = ended(std::move(a)), of_b = ended(std::move(b)), of_c = ended(std::move(c));
  EXPECT_EQ(losses(of_a), losses(of_b));
  EXPECT_THAT(of_c, HasSubstr("loaded none")) << "other flags are other programs";
  EXPECT_THAT(ended(start()), HasSubstr("compiled none"));
}

}  // namespace
}  // namespace lockstep::xla::test
