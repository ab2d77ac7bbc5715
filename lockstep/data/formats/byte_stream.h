#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/compression.h"
#include "lockstep/data/formats/inflate.h"

/// The bytes of a file that may be compressed.
namespace lockstep::data::detail {

/// Maps a file for reading. Throws DataError that names `operation` and the file.
Bytes map_whole(const std::string& path, std::string_view operation);

/// Hands out a file's bytes in pieces, uncompressed: all at once where they are in memory as they are, else a block at
/// a time. Behaves at damage as InflatedStream does.
class ByteStream {
 public:
  /// `compression` is not Auto.
  ByteStream(Bytes contents, Compression compression);

  /// Returns bytes that come next, some of them, without taking them; nothing at the end and at damage.
  std::string_view peek() { return inflated_ ? inflated_->peek() : contents_.view().substr(taken_); }
  /// Takes `count` bytes, at most as many as `peek` returned.
  void consume(size_t count);
  /// How many bytes were taken.
  uint64_t offset() const { return inflated_ ? inflated_->offset() : taken_; }
  /// What is wrong with the data, once they ended for that reason; empty otherwise.
  std::string_view problem() const { return inflated_ ? std::string_view(inflated_->problem()) : std::string_view(); }

  bool is_compressed() const { return inflated_.has_value(); }
  /// The memory of a file that is not compressed: pieces that `peek` returned lie in it.
  const Bytes& contents() const { return contents_; }

 private:
  Bytes contents_;
  size_t taken_ = 0;
  std::optional<InflatedStream> inflated_;
};

}  // namespace lockstep::data::detail
