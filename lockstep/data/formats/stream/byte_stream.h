#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/compression.h"
#include "lockstep/data/formats/stream/zlib_stream.h"

/// The bytes of a file that may be compressed.
namespace lockstep::data::detail {

/// Returns a file's uncompressed bytes in pieces: an uncompressed file as one piece, a compressed one in blocks. Damage
/// is handled as by InflatedStream.
class ByteStream {
 public:
  /// `compression` is not Auto.
  ByteStream(Bytes contents, Compression compression);

  /// Returns the next bytes without consuming them; nothing at the end and at damage.
  std::string_view peek() { return inflated_ ? inflated_->peek() : contents_.view().substr(taken_); }
  /// Consumes `count` bytes, at most as many as `peek` returned.
  void consume(size_t count);
  /// How many bytes were consumed.
  uint64_t offset() const { return inflated_ ? inflated_->offset() : taken_; }
  /// The damage that ended the data; empty otherwise.
  std::string_view problem() const { return inflated_ ? std::string_view(inflated_->problem()) : std::string_view(); }

  bool is_compressed() const { return inflated_.has_value(); }
  /// The memory of an uncompressed file: results of `peek` point into it.
  const Bytes& contents() const { return contents_; }

 private:
  Bytes contents_;
  size_t taken_ = 0;
  std::optional<InflatedStream> inflated_;
};

}  // namespace lockstep::data::detail
