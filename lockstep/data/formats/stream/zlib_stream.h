#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/compression.h"

/// Compression and decompression with zlib, block by block. Without zlib, no_zlib.cpp takes the source's place, and
/// every constructor throws.
namespace lockstep::data::detail {

/// Returns whether this library was built with zlib.
bool has_zlib();

/// Decompresses data from beginning to end. Holds one block of 64 KiB at a time.
///
/// Never throws for damaged data: bytes before the damage are returned, then the data end, and `problem()` has the
/// reason. The calling reader reports the record.
class InflatedStream {
 public:
  /// `compression` is Gzip or Zlib; throws c10::ValueError for others, c10::NotImplementedError without zlib.
  InflatedStream(Bytes compressed, Compression compression);
  ~InflatedStream();
  InflatedStream(InflatedStream&&) noexcept;
  InflatedStream& operator=(InflatedStream&&) noexcept;

  /// Returns the next bytes without consuming them; nothing at the end and at damage.
  std::string_view peek();
  /// Consumes `count` bytes, at most as many as `peek` returned.
  void consume(size_t count);
  /// Reads `size` bytes into `out`; returns how many, fewer only at the end and at damage.
  size_t read(char* out, size_t size);
  /// Skips `size` bytes; returns how many.
  uint64_t discard(uint64_t size);

  /// How many bytes were consumed.
  uint64_t offset() const;
  /// Returns whether `size` more bytes are possible: deflate expands one byte to at most 1032. Called before memory is
  /// allocated for a length that may be damaged.
  bool may_hold(uint64_t size) const;
  /// The damage that ended the data; empty otherwise.
  const std::string& problem() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Compresses data and passes them to a sink block by block.
class DeflatedStream {
 public:
  using Sink = std::function<void(std::string_view)>;

  /// `compression` is Gzip or Zlib; `level` is 0 (fast) to 9 (small), -1 is zlib's default.
  DeflatedStream(Compression compression, int level, Sink sink);
  ~DeflatedStream();
  DeflatedStream(DeflatedStream&&) noexcept;
  DeflatedStream& operator=(DeflatedStream&&) noexcept;

  void write(std::string_view bytes);
  /// Passes on everything written so far, such that it can be decompressed.
  void flush();
  /// Ends the data. Nothing may be written afterwards.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data::detail
