#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::progress {
class Task;
}

/// Internal: files whose bytes have checksums by blocks, so that a part of a file can be read and verified.
namespace lockstep::detail {

/// Bytes of a block; the last one of a file may be shorter.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

/// A file that is open for reading. Thread-safe.
class LOCKSTEP_API BlockFile {
 public:
  /// DataError where it cannot be opened or is no regular file. `checksums` are CRC-32C, one for each block; none: the
  /// file is not verified.
  BlockFile(std::string path, std::vector<uint32_t> checksums);
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;
  ~BlockFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  const std::vector<uint32_t>& checksums() const { return checksums_; }

  /// A part of the file and the memory that takes it.
  struct Range {
    int64_t offset = 0;
    std::span<char> target;
  };
  /// Reads ranges, ordered by offset and without overlaps, and verifies all blocks that they touch. DataError with file
  /// and offset for damage and at the end of the file.
  void read(std::span<const Range> ranges) const;
  /// Reads and verifies the whole file; `task` counts the bytes.
  void verify(progress::Task* task = nullptr) const;

  /// `read` in two steps, for two threads: one reads block by block, another one verifies.
  struct WantedBlock {
    int64_t number = 0;
    std::vector<Range> ranges;
  };
  struct FilledBlock {
    int64_t number = 0;
    /// All bytes of the block: in the targets, or here where none takes them.
    std::vector<std::span<char>> bytes;
    std::vector<char> own_bytes;
    /// Targets that are filled when the block is verified.
    std::vector<Range> copies;
  };
  /// Returns the blocks that the ranges touch.
  std::vector<WantedBlock> blocks_of(std::span<const Range> ranges) const;
  FilledBlock fill(const WantedBlock& block) const;
  void finish(const FilledBlock& block) const;

 private:
  void read_bytes(int64_t offset, std::span<const std::span<char>> targets) const;

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  std::vector<uint32_t> checksums_;
};

}  // namespace lockstep::detail
