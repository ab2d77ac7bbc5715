#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"

/// NumPy's `.npy` files: one array, as `numpy.save` writes it.
///
/// ```
/// at::Tensor images = data::load_npy("images.npy");  // at once, however large: the file is mapped, not read
/// at::Tensor first = images[0];                      // now its pages are read
/// data::save_npy("first.npy", first);
/// ```
///
/// What becomes of NumPy's types:
///
///   - bool, int8 to int64, uint8, float16 to float64, complex64 and complex128: the same, in place;
///   - uint16 and uint32: int32 and int64, in a copy, as LibTorch 1.13 has neither;
///   - uint64: int64, in place; DataError where a value is 2^63 or more;
///   - big endian: a copy in this machine's order;
///   - text, objects, records, dates, float128, bfloat16: DataError.
///
/// Fortran's order becomes the strides of the tensor and costs no copy. An array that does not start at a multiple of
/// its element's size is copied. Versions 1, 2 and 3 of the format are read, version 1 is written.
namespace lockstep::data {

/// What an array is, without its data. `dtype` is that of the tensor that reading gives.
struct LOCKSTEP_API ArrayInfo {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
};

/// Returns the array in a file. The tensor lies in the mapped file, which stays mapped as long as the tensor lives.
/// Writing into the tensor is allowed and changes the memory of this process only, never the file.
/// Throws DataError that names the file where it is missing, damaged, shorter than its header says, or of another type.
LOCKSTEP_API at::Tensor load_npy(const std::string& path);

/// Returns what the file at `path` holds, with `name` empty. Reads the header only.
LOCKSTEP_API ArrayInfo npy_info(const std::string& path);

/// Returns the array in `bytes`, which are those of a whole `.npy` file. The tensor keeps their buffer and, where no
/// copy is made, lies in it: bytes never change, and may be in read-only memory, so clone the tensor before writing to
/// it.
LOCKSTEP_API at::Tensor parse_npy(const Bytes& bytes);

/// Writes `tensor` as NumPy does, in C order, whatever its strides and device. The file appears when it is complete.
/// Throws c10::ValueError for types that NumPy has not, such as bfloat16, and DataError where writing fails.
LOCKSTEP_API void save_npy(const std::string& path, const at::Tensor& tensor);

}  // namespace lockstep::data
