// Functions of pure steps on a GPU: what cannot be recorded into a CUDA graph, and what a comparison with it finds.

#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/gpu/gpu_test.h"

namespace lockstep::test {
namespace {

using ::testing::HasSubstr;

class CapturedFunctionTest : public GpuTest {};

TEST_F(CapturedFunctionTest, AValueThatIsReadIsNamed) {
  const auto strategy = kOneDevice();
  int calls = 0;
  auto step = strategy.pure([&](const torch::Tensor& x) {
    ++calls;
    return x.sum().item<double>() > 0 ? x + 1 : x - 1;
  });
  for (int i = 0; i < 6; ++i) EXPECT_EQ(step(torch::ones({2}, torch::kCUDA))[0][0].item<double>(), 2.0);
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), HasSubstr("aten::_local_scalar_dense"));
  EXPECT_EQ(calls, 7);  // the third one twice
}

TEST_F(CapturedFunctionTest, TensorsOfTheHostAreRefused) {
  const auto strategy = kOneDevice();
  auto step = strategy.pure([](const torch::Tensor& x) {
    const auto pinned = torch::full({2}, 3.0, torch::TensorOptions().pinned_memory(true));
    return x + pinned.to(torch::kCUDA, /*non_blocking=*/true);
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step(torch::ones({2}, torch::kCUDA))[0][0].item<double>(), 4.0);
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), HasSubstr("memory of the host"));
}

TEST_F(CapturedFunctionTest, RandomNumbersOfTheHostAreRefused) {
  const auto strategy = kOneDevice();
  auto step = strategy.pure([](const torch::Tensor& x) { return x * torch::rand({1}, torch::kCPU).size(0); });
  for (int i = 0; i < 4; ++i) step(torch::ones({2}, torch::kCUDA));
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), HasSubstr("random numbers on the host"));
}

TEST_F(CapturedFunctionTest, AResultThatHasAGraphFromThenOnKeepsIt) {
  const auto strategy = kOneDevice();
  const auto weight = torch::ones({2}, torch::kCUDA).requires_grad_();
  int calls = 0;
  auto step = strategy.pure([&](const torch::Tensor& x) {
    const auto sum = (x * weight).sum();
    return ++calls > 2 ? sum : sum.detach();
  });
  torch::Tensor last;
  for (int i = 0; i < 4; ++i) last = step(torch::ones({2}, torch::kCUDA));
  EXPECT_TRUE(last.requires_grad());
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), HasSubstr("graph for gradients"));
}

TEST_F(CapturedFunctionTest, ErrorsOfTheFunctionAreItsOwn) {
  const auto strategy = kOneDevice();
  int calls = 0;
  auto step = strategy.pure([&](const torch::Tensor& x) {
    if (++calls > 2) throw std::runtime_error("no more");
    return x + 1;
  });
  step(torch::ones({2}));
  step(torch::ones({2}));
  EXPECT_THROW(step(torch::ones({2})), std::runtime_error);
  EXPECT_EQ(strategy.run([](const torch::Tensor& x) { return x * 3; }, torch::ones({2}))[0][0].item<double>(), 3.0);
}

TEST_F(CapturedFunctionTest, ImpureFunctionsAreFound) {
  const auto strategy = kOneDevice();
  double factor = 1;
  auto step = strategy.pure([&](const torch::Tensor& x) { return x * factor; });
  for (int i = 0; i < 5; ++i) step(torch::ones({2}));
  factor = 2;
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) step(torch::ones({2}));
      },
      c10::ValueError);
}

TEST_F(CapturedFunctionTest, AFunctionThatCanNoLongerBeRecordedIsAnError) {
  const auto strategy = kOneDevice();
  bool reads = false;
  auto step = strategy.pure([&](const torch::Tensor& x) { return reads ? x + x[0].item<double>() : x + 1; });
  step.check_every(4);
  for (int i = 0; i < 5; ++i) step(torch::ones({2}, torch::kCUDA));
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  reads = true;
  std::vector<std::string> errors;
  for (int i = 0; i < 12; ++i) {
    try {
      EXPECT_EQ(step(torch::ones({2}, torch::kCUDA))[0][0].item<double>(), 2.0);
    } catch (const c10::ValueError& error) {
      errors.emplace_back(error.what_without_backtrace());
    }
  }
  EXPECT_THAT(errors, ::testing::ElementsAre(HasSubstr("aten::_local_scalar_dense")));
  EXPECT_FALSE(step.is_replayed());
}

TEST_F(CapturedFunctionTest, ArgumentsThatShareMemoryAreNotRecordedByAComparison) {
  const auto strategy = kOneDevice();
  auto step = strategy.pure([](const torch::Tensor& x, const torch::Tensor& y) {
    x.add_(1);
    return x + y;
  });
  step.check_every(2);
  const auto x = torch::zeros({2}, torch::kCUDA);
  const auto y = torch::ones({2}, torch::kCUDA);
  for (int i = 0; i < 3; ++i) step(x, y);  // the second replay, which would be the next call, is due to be compared
  for (int i = 0; i < 6; ++i) EXPECT_EQ(step(x, x)[0][0].item<double>(), 2.0 * (i + 4));
  EXPECT_EQ(step(x, y)[0][0].item<double>(), 11.0);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
}

}  // namespace
}  // namespace lockstep::test
