#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/block_source.h"
#include "lockstep/data/formats/stream/compression.h"
#include "lockstep/data/formats/stream/file_access.h"

/// The bytes of a file that may be compressed.
namespace lockstep::data::detail {

/// A file as it is stored: mapped or otherwise in memory, or read block by block.
class StoredFile {
 public:
  explicit StoredFile(Bytes contents) : contents_(std::move(contents)) {}
  /// Opens a file. Throws DataError that names `operation` and the file.
  StoredFile(const std::string& path, std::string_view operation, FileAccess access);

  /// Returns the first bytes, enough to detect a format.
  std::string_view head() { return blocks_ ? blocks_->peek() : contents_.view(); }

 private:
  friend class ByteStream;
  Bytes contents_;
  std::unique_ptr<StoredBytes> blocks_;  // null where the contents are in memory
};

/// Returns a file's uncompressed bytes in pieces: a file in memory as one piece, others in blocks. Damage is handled as
/// by BlockSource.
class ByteStream {
 public:
  /// `compression` is not Auto.
  ByteStream(StoredFile file, Compression compression);

  /// Returns the next bytes without consuming them; nothing at the end and at damage. Throws DataError, once, at the
  /// end of a mapped file that has become shorter.
  std::string_view peek() {
    if (source_) return source_->peek();
    if (taken_ == contents_.size() && !checked_length_) check_length();
    return contents_.view().substr(taken_);
  }
  /// Consumes `count` bytes, at most as many as `peek` returned.
  void consume(size_t count);
  /// Reads `size` bytes of a file in blocks into `out`; returns how many, fewer only at the end and at damage.
  size_t read(char* out, size_t size) { return source_->read(out, size); }
  /// Skips `size` bytes; returns how many.
  uint64_t discard(uint64_t size);
  /// How many bytes were consumed.
  uint64_t offset() const { return source_ ? source_->offset() : taken_; }
  /// Returns whether `size` more bytes are possible.
  bool may_hold(uint64_t size) const { return source_ ? source_->may_hold(size) : size <= contents_.size() - taken_; }
  /// The damage that ended the data; empty otherwise.
  std::string_view problem() const { return source_ ? std::string_view(source_->problem()) : std::string_view(); }
  /// What damaged data break: a part of messages.
  std::string_view rule() const;

  /// Whether bytes come in blocks, so that they must be copied: not the one piece of an uncompressed file in memory.
  bool in_blocks() const { return source_ != nullptr; }
  /// The size of an uncompressed file.
  std::optional<uint64_t> size() const { return size_; }
  /// The memory of an uncompressed file in memory: results of `peek` point into it.
  const Bytes& contents() const { return contents_; }

 private:
  void check_length();

  Bytes contents_;
  size_t taken_ = 0;
  bool checked_length_ = false;
  std::unique_ptr<BlockSource> source_;
  std::optional<uint64_t> size_;
};

}  // namespace lockstep::data::detail
