#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::comm {

// Conversions of 16-bit floating point without branches, so that loops over them are vectorised. Values are those of
// c10::Half and c10::BFloat16: to the nearest, ties to even, NaN stays NaN.

inline uint32_t choose(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float bfloat16_to_float(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

inline uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7FC0u : rounded);
}

inline float half_to_float(uint16_t value) {
  const uint32_t word = static_cast<uint32_t>(value) << 16;
  const uint32_t sign = word & 0x80000000u;
  const uint32_t twice = word + word;
  const float normal = std::bit_cast<float>((twice >> 4) + (0xE0u << 23)) * 0x1.0p-112F;
  const float subnormal = std::bit_cast<float>((twice >> 17) | (126u << 23)) - 0.5F;
  return std::bit_cast<float>(
      sign | choose(twice < (1u << 27), std::bit_cast<uint32_t>(subnormal), std::bit_cast<uint32_t>(normal)));
}

inline uint16_t float_to_half(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = word & 0x80000000u;
  const uint32_t twice = word + word;
  const uint32_t exponent = twice & 0xFF000000u;
  const uint32_t bias = choose(exponent < 0x71000000u, 0x71000000u, exponent);
  const float magnitude = std::bit_cast<float>(word & 0x7FFFFFFFu);
  const float base = std::bit_cast<float>((bias >> 1) + 0x07800000u) + (magnitude * 0x1.0p+112F) * 0x1.0p-110F;
  const auto bits = std::bit_cast<uint32_t>(base);
  const uint32_t number = ((bits >> 13) & 0x7C00u) + (bits & 0x0FFFu);
  return static_cast<uint16_t>((sign >> 16) | choose(twice > 0xFF000000u, 0x7E00u, number));
}

/// Storage and compute types of a dtype: the template argument of loops for all dtypes.
template <class T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};

struct Half {
  using Stored = uint16_t;
  using Computed = float;
  static float load(uint16_t value) { return half_to_float(value); }
  static uint16_t store(float value) { return float_to_half(value); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Computed = float;
  static float load(uint16_t value) { return bfloat16_to_float(value); }
  static uint16_t store(float value) { return float_to_bfloat16(value); }
};

}  // namespace lockstep::comm
