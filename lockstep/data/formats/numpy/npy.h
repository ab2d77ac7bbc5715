#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"

/// NumPy's `.npy` files: one array, as `numpy.save` writes it.
///
/// ```
/// at::Tensor images = data::load_npy("images.npy");  // any size: the file is mapped, not read
/// at::Tensor first = images[0];                      // now its pages are read
/// data::save_npy("first.npy", first);
/// ```
///
/// Conversion of NumPy's types:
///
///   - bool, int8 to int64, uint8, float16 to float64, complex64 and complex128: unchanged, in place;
///   - uint16 and uint32: int32 and int64, in a copy, as LibTorch 1.13 has neither;
///   - uint64: int64, in place; DataError where a value is 2^63 or more;
///   - big endian: a copy in this machine's order;
///   - text, objects, records, dates, float128, bfloat16: DataError.
///
/// Fortran order becomes the strides of the tensor, without a copy. An array that does not start at a multiple of its
/// element size is copied. Versions 1, 2 and 3 of the format are read, version 1 is written.
namespace lockstep::data {

/// Name, dtype and shape of an array. `dtype` is that of the tensor it is read as.
struct LOCKSTEP_API ArrayInfo {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
};

/// Returns the array in a file. The tensor shares the memory of the mapped file, which stays mapped for its lifetime.
/// Writes to the tensor change the memory of this process only, never the file.
/// Throws DataError that names the file where it is missing, damaged, shorter than its header says, or of another type.
LOCKSTEP_API at::Tensor load_npy(const std::string& path);

/// Returns dtype and shape of the array in a file, with an empty `name`. Reads the header only.
LOCKSTEP_API ArrayInfo npy_info(const std::string& path);

/// Returns the array in `bytes`, the contents of a whole `.npy` file, in memory of its own: writes to it do not change
/// the bytes. A large array in a mapped file is not copied: its pages are, when they are written.
LOCKSTEP_API at::Tensor parse_npy(const Bytes& bytes);

/// Writes `tensor` as NumPy does, in C order, whatever its strides and device. The file gets its name when it is
/// complete. Throws c10::ValueError for types that NumPy does not have, such as bfloat16, and DataError where writing
/// fails.
LOCKSTEP_API void save_npy(const std::string& path, const at::Tensor& tensor);

}  // namespace lockstep::data
