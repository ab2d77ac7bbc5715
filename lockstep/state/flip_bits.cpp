#include "lockstep/state/flip_bits.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::detail {

void flip_bits(char* memory, int64_t num_bytes, int64_t element_bytes, uint64_t bits) {
  LOCKSTEP_ASSERT(element_bytes == 4 || element_bytes == 8);
  const uint64_t pattern = element_bytes == 4 ? (bits << 32U) | bits : bits;
  int64_t at = 0;
  for (; at + 8 <= num_bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, memory + at, 8);
    word ^= pattern;
    std::memcpy(memory + at, &word, 8);
  }
  if (at == num_bytes) return;
  const auto half = static_cast<uint32_t>(bits);
  uint32_t last = 0;
  std::memcpy(&last, memory + at, 4);
  last ^= half;
  std::memcpy(memory + at, &last, 4);
}

void flip_bits(const at::Tensor& tensor, uint64_t bits) {
  if (bits == 0) return;
  LOCKSTEP_ASSERT(tensor.device().is_cpu() && tensor.is_contiguous());
  flip_bits(static_cast<char*>(tensor.data_ptr()), static_cast<int64_t>(tensor.nbytes()), tensor.element_size(), bits);
}

}  // namespace lockstep::detail
