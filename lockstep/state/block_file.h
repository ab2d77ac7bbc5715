#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// Internal: files whose bytes have checksums by blocks, so that a part of a file can be read and verified.
namespace lockstep::detail {

/// Bytes of a block; the last one of a file may be shorter.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

/// A file that is open for reading. Thread-safe.
class LOCKSTEP_API BlockFile {
 public:
  /// DataError where it cannot be opened or is no regular file. `checksums` are CRC-32C, one for each block; none: the
  /// file is not verified. With `direct` blocks are read past the page cache, where the file system can: faster than
  /// through it for files that are not in it and are read once.
  BlockFile(std::string path, std::vector<uint32_t> checksums, bool direct = false);
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
  /// Reads and verifies the whole file.
  void verify() const;
  /// Asks the system to read a part of the file in the background.
  void will_need(int64_t offset, int64_t num_bytes) const;

 private:
  void read_bytes(int64_t offset, std::span<const std::span<char>> targets) const;
  uint32_t read_and_sum(int64_t offset, std::span<const std::span<char>> targets) const;
  /// A block, and the parts of it that are wanted.
  struct WantedBlock {
    int64_t number = 0;
    std::vector<Range> ranges;
  };
  static std::vector<WantedBlock> blocks_of(std::span<const Range> ranges);
  void read_block(const WantedBlock& block, std::vector<char>& unwanted) const;
  void read_directly(std::span<const WantedBlock> blocks) const;
  bool fill_directly(int64_t begin, int64_t end, char* memory) const;
  void check_block(int64_t block, uint32_t checksum) const;

  std::string path_;
  int descriptor_ = -1;
  int direct_descriptor_ = -1;
  int64_t size_ = 0;
  std::vector<uint32_t> checksums_;
};

}  // namespace lockstep::detail
