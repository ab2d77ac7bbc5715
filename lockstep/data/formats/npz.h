#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/npy.h"

/// NumPy's `.npz` files: a zip archive of named arrays, as `numpy.savez` and `savez_compressed` write it.
///
/// ```
/// auto arrays = data::load_npz("mnist.npz");
/// at::Tensor images = arrays.at("x_train"), labels = arrays.at("y_train");
/// at::Tensor test = data::load_npz("mnist.npz", {"x_test"}).at("x_test");  // the others are not touched
/// ```
///
/// Types become those that npy.h lists. A member that was stored without compression lies in the mapped file where its
/// data is aligned: always in files of `save_npz`, rarely in NumPy's. Such a member is not read, and so not checked,
/// until it is used; every other one is copied or uncompressed, and its CRC is checked. Members that are no `.npy`
/// files are passed over.
namespace lockstep::data {

/// Returns all arrays of a file, by name. Writing into them never changes the file.
/// Throws DataError that names file and member where something is damaged; c10::NotImplementedError for a compressed
/// member where lockstep was built without zlib.
LOCKSTEP_API std::map<std::string, at::Tensor> load_npz(const std::string& path);

/// Returns the arrays called `names` and reads no other. Throws c10::ValueError that lists what there is for a name
/// that is not there.
LOCKSTEP_API std::map<std::string, at::Tensor> load_npz(const std::string& path, const std::vector<std::string>& names);

/// Returns all arrays of a file in memory. They must not be written to; see `parse_npy`.
LOCKSTEP_API std::map<std::string, at::Tensor> parse_npz(const Bytes& bytes);

/// Returns what the arrays of a file are, in its order. Reads their headers only.
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

/// Writes `arrays` under their names. The file appears when it is complete. Throws as `save_npy` does.
LOCKSTEP_API void save_npz(const std::string& path, const std::map<std::string, at::Tensor>& arrays,
                           const SaveNpzOptions& options = {});

}  // namespace lockstep::data
