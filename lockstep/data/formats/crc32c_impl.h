#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// The ways to compute CRC-32C. A state is the checksum with all bits inverted.
namespace lockstep::data::detail {

/// Takes a state on by `size` bytes.
using Crc32cFunction = uint32_t (*)(uint32_t state, const char* data, size_t size);

/// Slices of eight bytes through tables; for every processor.
uint32_t crc32c_by_tables(uint32_t state, const char* data, size_t size);

/// Returns the way that uses this processor's instruction, or null where it has none. In crc32c_arm64.cpp,
/// crc32c_x86_64.cpp or crc32c_no_hardware.cpp, as CMake chooses.
Crc32cFunction crc32c_by_hardware();

/// Takes states on by `kLength` bytes of zero: four look-ups in the place of `kLength` steps.
template <size_t kLength>
class Crc32cZeros {
 public:
  Crc32cZeros() {
    const std::array<char, kLength> zeros{};
    std::array<uint32_t, 32> bits{};
    for (size_t i = 0; i < 32; ++i) bits[i] = crc32c_by_tables(uint32_t{1} << i, zeros.data(), kLength);
    for (size_t i = 0; i < table_.size(); ++i) {
      for (uint32_t value = 0; value < 256; ++value) {
        for (size_t bit = 0; bit < 8; ++bit) {
          if ((value >> bit) & 1) table_[i][value] ^= bits[8 * i + bit];
        }
      }
    }
  }
  uint32_t operator()(uint32_t state) const {
    return table_[0][state & 255] ^ table_[1][(state >> 8) & 255] ^ table_[2][(state >> 16) & 255] ^
           table_[3][state >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> table_{};
};

inline uint64_t load_word(const char* data) {
  uint64_t word = 0;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

}  // namespace lockstep::data::detail
