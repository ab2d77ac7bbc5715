#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/compression.h"

/// Uncompressing, block by block. Without zlib, no_zlib.cpp takes this file's place and every constructor throws.
namespace lockstep::data::detail {

/// Says whether this library was built with zlib.
bool has_zlib();

/// The bytes that compressed data stand for, from the first to the last. Holds one block of 64 KiB at a time.
///
/// Never throws for damaged data: what came before the damage is handed out, then it is as if the data had ended, and
/// `problem()` says why. The reader on top knows which record that is.
class InflatedStream {
 public:
  /// `compression` is Gzip or Zlib; throws c10::ValueError for others, c10::NotImplementedError without zlib.
  InflatedStream(Bytes compressed, Compression compression);
  ~InflatedStream();
  InflatedStream(InflatedStream&&) noexcept;
  InflatedStream& operator=(InflatedStream&&) noexcept;

  /// Returns bytes that come next, some of them, without taking them; nothing at the end and at damage.
  std::string_view peek();
  /// Takes `count` bytes, at most as many as `peek` returned.
  void consume(size_t count);
  /// Takes `size` bytes into `out`; returns how many, fewer at the end and at damage only.
  size_t read(char* out, size_t size);
  /// Takes `size` bytes and forgets them; returns how many.
  uint64_t discard(uint64_t size);

  /// How many bytes were taken.
  uint64_t offset() const;
  /// Says whether `size` more bytes can come at all: deflate makes at most 1032 bytes of one. To be asked before memory
  /// is taken for what a damaged length says.
  bool may_hold(uint64_t size) const;
  /// What is wrong with the data, once they ended for that reason; empty otherwise.
  const std::string& problem() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data::detail
