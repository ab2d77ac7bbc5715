#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/data/element/bytes.h"

/// Shared by the readers and writers of `.npy` and `.npz`.
namespace lockstep::data::detail {

/// The origin of bytes, for messages: `[operation] rule: where, ...`.
struct Origin {
  std::string_view operation;
  /// `file="x.npz", member="a"`, or the number of bytes.
  std::string where;
};

/// The format of the elements of an array in a file.
struct NpyElement {
  /// 'b' bool, 'i' signed, 'u' unsigned, 'f' floating point, 'c' complex.
  char kind = 'f';
  size_t size = 4;
  /// The size of the words whose bytes are swapped: half of a complex number.
  size_t word_size() const { return kind == 'c' ? size / 2 : size; }
  bool swapped = false;
  /// The type of the tensor.
  at::ScalarType dtype = at::kFloat;
};

struct NpyHeader {
  int version = 1;
  NpyElement element;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  /// The offset of the data from the start of the file.
  size_t data_offset = 0;
  /// The number of elements, and of their bytes in the file. Checked for overflow.
  int64_t count = 0;
  size_t data_size = 0;
};

/// Reads the header at the start of `bytes`; the data may be missing. Throws DataError.
NpyHeader parse_npy_header(std::string_view bytes, const Origin& origin);

enum class NpyMemory {
  /// Of the bytes where that is possible. They must be writable.
  Shared,
  /// Of the tensor alone.
  Own,
};

/// Returns the array of a whole `.npy` file in memory.
at::Tensor read_npy(const Bytes& bytes, const Origin& origin, NpyMemory memory);

/// Returns the header of a contiguous tensor. Its length is a multiple of 64.
std::string npy_header_of(const at::Tensor& tensor, std::string_view operation);

/// Returns `tensor` as it is written: on the CPU, contiguous, without lazy conjugation or negation.
at::Tensor writable_npy(const at::Tensor& tensor);

/// Returns the memory of a tensor of `writable_npy`.
std::string_view memory_of(const at::Tensor& tensor);

}  // namespace lockstep::data::detail
