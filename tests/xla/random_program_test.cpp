#include "tests/xla/random_program.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/collectives.h"
#include "lockstep/xla/engine/start.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

/// LOCKSTEP_TEST_PROGRAMS programs, for whoever wants to search longer.
uint32_t num_programs(uint32_t otherwise) {
  const char* given = std::getenv("LOCKSTEP_TEST_PROGRAMS");
  return given == nullptr ? otherwise : static_cast<uint32_t>(std::atoi(given));
}

/// Runs programs [0, count) with the inputs that `place` puts on a device. Some of them at a time are traced before a
/// value is read, so that they are compiled as one.
void expect_equal_libtorch(uint32_t count, const std::function<PlaceInput(uint32_t seed)>& place) {
  constexpr uint32_t kAtOnce = 8;
  const std::vector<at::Tensor> inputs = random_program_inputs();
  for (uint32_t first = 0; first < count; first += kAtOnce) {
    const uint32_t end = std::min(count, first + kAtOnce);
    std::vector<std::vector<at::Tensor>> found;
    for (uint32_t seed = first; seed < end; ++seed) found.push_back(run_random_program(seed, inputs, place(seed)));
    for (uint32_t seed = first; seed < end; ++seed) {
      SCOPED_TRACE("program " + std::to_string(seed));
      const auto expected = run_random_program(seed, inputs, [](const at::Tensor& input) { return input.clone(); });
      for (size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor got = found[seed - first][i].cpu();
        ASSERT_TRUE(at::allclose(got, expected[i], 1e-9, 1e-9))
            << "result " << i << ": largest difference " << (got - expected[i]).abs().max().item<double>();
      }
    }
  }
}

/// Cuts a tensor along one of the dimensions that can be cut; which one, `choice` says.
at::Tensor split(const at::Tensor& tensor, int64_t parts, uint32_t choice) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) % parts == 0) dims.push_back(dim);
  }
  if (dims.empty()) return tensor;
  std::vector<int64_t> tiles(tensor.dim(), 1);
  tiles[dims[choice % dims.size()]] = parts;
  return annotated(tensor, tiled_layout(tiles));
}

TEST(RandomProgramTest, EqualsLibTorch) {
  LOCKSTEP_NEEDS_PLUGIN();
  at::manual_seed(3);
  start();
  const c10::Device device = device_of({0}).torch_device();
  const int64_t fallbacks = counters().fallbacks;
  expect_equal_libtorch(num_programs(12),
                        [&](uint32_t) { return [&](const at::Tensor& input) { return input.to(device); }; });
  EXPECT_EQ(counters().fallbacks, fallbacks);
}

class SplitProgramTest : public ::testing::TestWithParam<int> {};

TEST_P(SplitProgramTest, EqualsLibTorch) {
  LOCKSTEP_NEEDS_PLUGIN();
  at::manual_seed(4);
  const int parts = GetParam();
  if (static_cast<int>(start().devices().size()) < parts) GTEST_SKIP() << "there are fewer devices than " << parts;
  std::vector<int> devices(parts);
  std::iota(devices.begin(), devices.end(), 0);
  const c10::Device device = device_of(devices).torch_device();
  expect_equal_libtorch(num_programs(5), [&](uint32_t seed) {
    return [&, choice = seed](const at::Tensor& input) mutable { return split(input.to(device), parts, choice++); };
  });
}

INSTANTIATE_TEST_SUITE_P(LogicalDevices, SplitProgramTest, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace lockstep::xla::test
