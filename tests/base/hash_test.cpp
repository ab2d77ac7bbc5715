#include "lockstep/base/hash.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

uint64_t hash_of(const std::string& bytes) { return mix_hash(1, bytes.data(), bytes.size()); }

TEST(HashTest, EveryBitCounts) {
  for (const size_t size : {1, 7, 8, 9, 63, 64, 255, 256, 257, 300, 519}) {
    const std::string zeros(size, '\0');
    std::set<uint64_t> seen{hash_of(zeros)};
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      std::string changed = zeros;
      changed[bit / 8] = static_cast<char>(1 << (bit % 8));
      EXPECT_TRUE(seen.insert(hash_of(changed)).second) << "size " << size << ", bit " << bit;
    }
  }
}

TEST(HashTest, LengthCounts) {
  std::set<uint64_t> seen;
  for (size_t size = 0; size < 600; ++size) EXPECT_TRUE(seen.insert(hash_of(std::string(size, '\0'))).second) << size;
}

// The highest bit of a word is the sign of a float: two changed signs in one lane must not cancel.
TEST(HashTest, TwoChangedSignsDoNotCancel) {
  const std::string zeros(4096, '\0');
  std::set<uint64_t> seen{hash_of(zeros)};
  for (size_t first = 7; first < 1024; first += 64) {
    for (size_t second = first + 64; second < 4096; second += 64) {
      std::string changed = zeros;
      changed[first] = changed[second] = static_cast<char>(0x80);
      EXPECT_TRUE(seen.insert(hash_of(changed)).second) << first << " " << second;
    }
  }
}

TEST(HashTest, AlignmentDoesNotCount) {
  std::vector<char> memory(700);
  for (size_t i = 0; i < 600; ++i) memory[i + 1] = static_cast<char>(i * 7);
  const std::string aligned(memory.data() + 1, 600);
  EXPECT_EQ(mix_hash(1, memory.data() + 1, 600), hash_of(aligned));
}

}  // namespace
}  // namespace lockstep
