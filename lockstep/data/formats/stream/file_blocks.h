#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/formats/stream/block_source.h"

namespace lockstep::data::detail {

/// A file that is read block by block, from beginning to end. The system is asked to read the blocks behind in advance.
/// Skipped bytes are not read. Holds one block of 1 MiB at a time.
class FileBlocks final : public StoredBytes {
 public:
  /// Throws DataError that names `operation` and the file where it cannot be opened or is no plain file.
  FileBlocks(const std::string& path, std::string_view operation);
  ~FileBlocks() override;

  std::string_view peek() override;
  void consume(size_t count) override { begin_ += count; }
  size_t read(char* out, size_t size) override;
  uint64_t discard(uint64_t size) override;
  uint64_t offset() const override { return position_ - (end_ - begin_); }
  uint64_t left() const override { return size_ - offset(); }
  const std::string& problem() const override { return problem_; }

 private:
  size_t read_at_position(char* out, size_t size);

  int file_;
  uint64_t size_ = 0;
  /// Behind the bytes that were read.
  uint64_t position_ = 0;
  uint64_t announced_ = 0;
  std::vector<char> block_;
  size_t begin_ = 0;  // what of the block is still to be handed out
  size_t end_ = 0;
  std::string problem_;
};

/// Reads a whole file into memory. Throws DataError that names `operation` and the file.
Bytes read_whole(const std::string& path, std::string_view operation);

}  // namespace lockstep::data::detail
