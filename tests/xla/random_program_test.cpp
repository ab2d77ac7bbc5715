#include "tests/xla/random_program.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "lockstep/xla/counters.h"
#include "lockstep/xla/tensor/place.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

/// LOCKSTEP_TEST_PROGRAMS programs, for whoever wants to search longer.
uint32_t num_programs() {
  const char* given = std::getenv("LOCKSTEP_TEST_PROGRAMS");
  return given == nullptr ? 60 : static_cast<uint32_t>(std::atoi(given));
}

TEST(RandomProgramTest, EqualsLibTorch) {
  LOCKSTEP_NEEDS_PLUGIN();
  at::manual_seed(3);
  start();
  const c10::Device device = place_of({0}).torch_device();
  const std::vector<at::Tensor> inputs = random_program_inputs();
  const int64_t fallbacks = counters().fallbacks;
  for (uint32_t seed = 0; seed < num_programs(); ++seed) {
    SCOPED_TRACE("program " + std::to_string(seed));
    const auto expected = run_random_program(seed, inputs, [](const at::Tensor& input) { return input.clone(); });
    const auto found = run_random_program(seed, inputs, [&](const at::Tensor& input) { return input.to(device); });
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor got = found[i].cpu();
      ASSERT_TRUE(at::allclose(got, expected[i], 1e-9, 1e-9))
          << "result " << i << ": largest difference " << (got - expected[i]).abs().max().item<double>();
    }
  }
  EXPECT_EQ(counters().fallbacks, fallbacks);
}

}  // namespace
}  // namespace lockstep::xla::test
