#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/data/bytes.h"

/// The pieces of which the readers and writers of `.npy` and `.npz` are made.
namespace lockstep::data::detail {

/// Where bytes come from, for messages: `[operation] rule: where, ...`.
struct Origin {
  std::string_view operation;
  /// `file="x.npz", member="a"`, or how many bytes there are.
  std::string where;
};

/// How the elements of an array lie in a file.
struct NpyElement {
  /// 'b' bool, 'i' signed, 'u' unsigned, 'f' floating point, 'c' complex.
  char kind = 'f';
  size_t size = 4;
  /// Bytes of what is swapped as a whole: half of a complex number.
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
  /// Where the data starts, counted from the first byte of the file.
  size_t data_offset = 0;
  /// Elements, and bytes that they take in the file. Never overflow.
  int64_t count = 0;
  size_t data_size = 0;
};

/// Reads the header at the start of `bytes`, which may end behind it. Throws DataError.
NpyHeader parse_npy_header(std::string_view bytes, const Origin& origin);

/// Returns the array of a whole `.npy` file in memory; it lies in the buffer of `bytes` where that is possible.
at::Tensor read_npy(const Bytes& bytes, const Origin& origin);

/// Returns what stands before the data of a contiguous tensor. Its length is a multiple of 64.
std::string npy_header_of(const at::Tensor& tensor, std::string_view operation);

/// Returns `tensor` as what is written: on the CPU, contiguous, without lazy conjugation or negation.
at::Tensor writable_npy(const at::Tensor& tensor);

/// Returns the memory of a tensor that `writable_npy` made.
std::string_view memory_of(const at::Tensor& tensor);

}  // namespace lockstep::data::detail
