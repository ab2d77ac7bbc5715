#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "lockstep/data/formats/compression.h"

/// Compressing. Without zlib, no_zlib.cpp takes this file's place and every constructor throws.
namespace lockstep::data::detail {

/// Hands compressed data on as they come.
class DeflatedStream {
 public:
  using Sink = std::function<void(std::string_view)>;

  /// `compression` is Gzip or Zlib; `level` is 0 (fast) to 9 (small), -1 zlib's own choice.
  DeflatedStream(Compression compression, int level, Sink sink);
  ~DeflatedStream();
  DeflatedStream(DeflatedStream&&) noexcept;
  DeflatedStream& operator=(DeflatedStream&&) noexcept;

  void write(std::string_view bytes);
  /// Hands on everything written so far, such that it can be uncompressed.
  void flush();
  /// Ends the data. Nothing may be written afterwards.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data::detail
