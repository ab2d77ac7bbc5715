#include "lockstep/base/crc32c.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/data/formats/fixtures.h"

namespace lockstep::data {
namespace {

// The definition, bit by bit.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t state = ~uint32_t{0};
  for (const char c : bytes) {
    state ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~state;
}

std::string some_bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + i / 251);
  return bytes;
}

TEST(Crc32cTest, GivesTensorFlowsSums) {
  const auto expected = tests::expected_answers("records").at("_crc32c");
  for (const auto& [hex, sum] : expected.at("hex of data").items()) {
    EXPECT_EQ(crc32c(tests::from_hex(hex)), sum.get<uint32_t>()) << hex;
  }
  for (const auto& [hex, sum] : expected.at("masked").items()) {
    EXPECT_EQ(masked_crc32c(tests::from_hex(hex)), sum.get<uint32_t>()) << hex;
  }
}

TEST(Crc32cTest, AgreesWithItsDefinitionForAllLengthsAndAlignments) {
  const std::string bytes = some_bytes(8000);
  for (size_t size = 0; size < 2200; size += size < 100 ? 1 : 37) {
    const std::string_view piece = std::string_view(bytes).substr(size % 9, size);
    ASSERT_EQ(crc32c(piece), slow_crc32c(piece)) << size;
  }
  for (const size_t size : {383, 384, 385, 1535, 1536, 1537, 1920, 3072, 7000}) {
    ASSERT_EQ(crc32c(std::string_view(bytes).substr(1, size)), slow_crc32c(std::string_view(bytes).substr(1, size)));
  }
}

TEST(Crc32cTest, GoesOnFromWhatCameBefore) {
  const std::string bytes = some_bytes(5000);
  const std::string_view view = bytes;
  for (const size_t cut : {0, 1, 7, 1600, 4999, 5000}) {
    EXPECT_EQ(crc32c(view.substr(cut), crc32c(view.substr(0, cut))), crc32c(view)) << cut;
  }
}

}  // namespace
}  // namespace lockstep::data
