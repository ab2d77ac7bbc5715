#include "lockstep/comm/reduce/narrow_float.h"

#include <bit>
#include <cmath>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(NarrowFloatTest, EveryValueWidensAsInLibTorch) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto word = static_cast<uint16_t>(bits);
    const float half = c10::Half(word, c10::Half::from_bits());
    const float brain = c10::BFloat16(word, c10::BFloat16::from_bits());
    ASSERT_TRUE(half_to_float(word) == half || (std::isnan(half) && std::isnan(half_to_float(word)))) << bits;
    ASSERT_TRUE(bfloat16_to_float(word) == brain || (std::isnan(brain) && std::isnan(bfloat16_to_float(word)))) << bits;
  }
}

TEST(NarrowFloatTest, RoundsAsLibTorch) {
  for (uint64_t bits = 0; bits < (1ull << 32); bits += 1021) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(half_to_float(float_to_half(value))));
      ASSERT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(value))));
      continue;
    }
    ASSERT_EQ(float_to_half(value), c10::Half(value).x) << value;
    ASSERT_EQ(float_to_bfloat16(value), c10::BFloat16(value).x) << value;
  }
}

}  // namespace
}  // namespace lockstep::comm
