#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/state/state.h"

namespace lockstep::progress {
class Task;
}

/// Internal: a checkpoint on disk is a folder with one safetensors file for each worker (a part) and an index:
///
///     step_0000001200/
///       part_00000_of_00002.safetensors
///       part_00001_of_00002.safetensors
///       index.json      names, shapes, dtypes, where the pieces of each tensor are, checksums, numbers and texts, step
///
/// It is complete when index.json is there. It is written under another name, synced, and then renamed.
namespace lockstep::detail {

/// Consecutive elements of a tensor to be written, in memory of the host.
struct SavedPiece {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  /// Of the whole tensor.
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  int64_t end = 0;
  const char* bytes = nullptr;
  /// Further names of the tensor.
  std::vector<std::string> aliases = {};
};

/// What the index says of a part. `str` and `parse` convert to and from JSON.
struct LOCKSTEP_API PartIndex {
  struct Piece {
    std::string name;
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes;
    int64_t begin = 0;
    int64_t end = 0;
    /// Of the first byte in the file.
    int64_t offset = 0;
  };
  /// Without folders.
  std::string file;
  int64_t num_bytes = 0;
  /// CRC-32C of each block of kBlockBytes of the file.
  std::vector<uint32_t> checksums;
  std::vector<Piece> pieces;

  std::string str() const;
  /// DataError where the text is no such index.
  static PartIndex parse(const std::string& text);
};

struct WriteOptions {
  /// Whether bytes are on the disk when the call returns.
  bool sync = true;
  /// Whether the page cache is avoided, where the file system can: the training's own memory traffic suffers less.
  bool direct = true;
  /// Counts the bytes of a part while they are written; may be null.
  progress::Task* task = nullptr;
};

/// Writes a part. Pieces of one tensor that follow each other in the list, in elements and in memory become one. A
/// whole tensor has its name and shape in the file; another piece is a vector "name[begin:end]". Bytes of a tensor with
/// several names are written once: the returned index has a piece for each name, at the same offset. DataError with
/// path and reason where the system refuses (no space, no permission).
LOCKSTEP_API PartIndex write_part(const std::string& path, const std::vector<SavedPiece>& pieces,
                                  const WriteOptions& options);

/// What a checkpoint says of itself.
struct LOCKSTEP_API CheckpointInfo {
  int64_t step = 0;
  /// Seconds since 1970.
  double time = 0;
  std::string lockstep_version = {};
  std::string libtorch_version = {};
  /// "MirroredStrategy, 2 replicas"
  std::string written_by = {};
  std::vector<PartIndex> parts = {};
};

/// Writes index.json into a folder that has all parts and syncs both, where asked. ValueError where the pieces of a
/// tensor do not cover it exactly once: the names are listed. `values` gives numbers and texts; its tensors are
/// ignored.
LOCKSTEP_API void write_index(const std::string& folder, CheckpointInfo info, const State& values,
                              const WriteOptions& options);

/// An open checkpoint.
struct StoredCheckpoint {
  CheckpointInfo info;
  /// Tensors are in files.
  State state;
};

/// Opens a checkpoint. DataError where the index or a part is missing, or does not match; values are verified when they
/// are read.
LOCKSTEP_API StoredCheckpoint open_checkpoint(const std::string& folder);
/// Opens it and reads every byte, which `task` counts. DataError with the first damage.
LOCKSTEP_API StoredCheckpoint verify_checkpoint(const std::string& folder, progress::Task* task = nullptr);

/// "step_0000001200"
LOCKSTEP_API std::string checkpoint_name(int64_t step);
/// The step of such a name; nothing for other names.
LOCKSTEP_API std::optional<int64_t> step_of_name(const std::string& name);
/// The steps of all folders with such names that have an index, ascending.
LOCKSTEP_API std::vector<int64_t> list_checkpoints(const std::string& folder);

/// fsync of a folder.
LOCKSTEP_API void sync_folder(const std::string& folder);

}  // namespace lockstep::detail
