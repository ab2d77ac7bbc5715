#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/numpy/npy.h"

/// NumPy's `.npz` files: a zip archive of named arrays, as `numpy.savez` and `savez_compressed` write it.
///
/// ```
/// auto arrays = data::load_npz("mnist.npz");
/// at::Tensor images = arrays.at("x_train"), labels = arrays.at("y_train");
/// at::Tensor test = data::load_npz("mnist.npz", {"x_test"}).at("x_test");  // the others are not touched
/// ```
///
/// npy.h lists the conversion of types. An uncompressed member shares the memory of the mapped file where its data is
/// aligned: always in files of `save_npz`, rarely in NumPy's. Such a member is not read, and not checked, before it is
/// used; every other one is copied or decompressed, and its CRC is checked. Members that are no `.npy` files are
/// skipped.
namespace lockstep::data {

/// Returns all arrays of a file, by name. Writes to them never change the file.
/// Throws DataError that names file and member where something is damaged; c10::NotImplementedError for a compressed
/// member where lockstep was built without zlib.
LOCKSTEP_API std::map<std::string, at::Tensor> load_npz(const std::string& path);

/// Returns the arrays with these names and reads no others. Throws c10::ValueError that lists the known names for an
/// unknown one.
LOCKSTEP_API std::map<std::string, at::Tensor> load_npz(const std::string& path, const std::vector<std::string>& names);

/// Returns all arrays of a file in memory, in memory of their own; see `parse_npy`.
LOCKSTEP_API std::map<std::string, at::Tensor> parse_npz(const Bytes& bytes);

/// Returns name, dtype and shape of the arrays of a file, in its order. Reads their headers only.
LOCKSTEP_API std::vector<ArrayInfo> npz_members(const std::string& path);

enum class NpzCompression {
  /// As `numpy.savez`. Members start at multiples of 64, so that `load_npz` maps them.
  Stored,
  /// As `numpy.savez_compressed`. Needs zlib.
  Deflated,
};

struct LOCKSTEP_API SaveNpzOptions {
  NpzCompression compression = NpzCompression::Stored;
};

/// Writes `arrays` under their names. The file gets its name when it is complete. Throws as `save_npy` does.
LOCKSTEP_API void save_npz(const std::string& path, const std::map<std::string, at::Tensor>& arrays,
                           const SaveNpzOptions& options = {});

}  // namespace lockstep::data
