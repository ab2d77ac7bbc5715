#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/data/formats/stream/block_source.h"
#include "lockstep/data/formats/stream/compression.h"

/// Compression and decompression with zlib, block by block. Without zlib, no_zlib.cpp takes the source's place, and
/// every constructor throws.
namespace lockstep::data::detail {

/// Returns whether this library was built with zlib.
bool has_zlib();

/// Decompresses data from beginning to end. Holds one block of 64 KiB at a time.
class InflatedStream final : public BlockSource {
 public:
  /// `compression` is Gzip or Zlib; throws c10::ValueError for others, c10::NotImplementedError without zlib.
  InflatedStream(std::unique_ptr<StoredBytes> compressed, Compression compression);
  ~InflatedStream() override;

  std::string_view peek() override;
  void consume(size_t count) override;
  size_t read(char* out, size_t size) override;
  uint64_t offset() const override;
  /// Deflate expands one byte to at most 1032.
  bool may_hold(uint64_t size) const override;
  const std::string& problem() const override;

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
