#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/data/element/bytes.h"

namespace lockstep::data::detail {

/// Bytes from beginning to end, block by block.
///
/// Never throws for damage: bytes before it are returned, then the data end, and `problem()` has the reason. The
/// calling reader reports the record.
class BlockSource {
 public:
  BlockSource() = default;
  virtual ~BlockSource() = default;
  BlockSource(const BlockSource&) = delete;
  BlockSource& operator=(const BlockSource&) = delete;

  /// Returns the next bytes without consuming them; nothing at the end and at damage.
  virtual std::string_view peek() = 0;
  /// Consumes `count` bytes, at most as many as `peek` returned.
  virtual void consume(size_t count) = 0;
  /// Reads `size` bytes into `out`; returns how many, fewer only at the end and at damage.
  virtual size_t read(char* out, size_t size);
  /// Skips `size` bytes; returns how many.
  virtual uint64_t discard(uint64_t size);

  /// How many bytes were consumed.
  virtual uint64_t offset() const = 0;
  /// Returns whether `size` more bytes are possible. Called before memory is allocated for a length that may be
  /// damaged.
  virtual bool may_hold(uint64_t size) const = 0;
  /// The damage that ended the data; empty otherwise.
  virtual const std::string& problem() const = 0;
};

/// The bytes of a file as they are stored, in memory or read block by block.
class StoredBytes : public BlockSource {
 public:
  /// How many bytes are left.
  virtual uint64_t left() const = 0;
  bool may_hold(uint64_t size) const final { return size <= left(); }
  /// `peek` returns at least this many bytes where there are as many: enough to detect a format.
  static constexpr size_t kLeastBlock = 64;
};

class BytesInMemory final : public StoredBytes {
 public:
  explicit BytesInMemory(Bytes bytes) : bytes_(std::move(bytes)) {}
  std::string_view peek() override { return bytes_.view().substr(taken_); }
  void consume(size_t count) override { taken_ += count; }
  uint64_t offset() const override { return taken_; }
  uint64_t left() const override { return bytes_.size() - taken_; }
  const std::string& problem() const override { return problem_; }

 private:
  Bytes bytes_;
  size_t taken_ = 0;
  std::string problem_;
};

}  // namespace lockstep::data::detail
