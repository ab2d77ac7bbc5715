#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <c10/util/intrusive_ptr.h>

#include "lockstep/api.h"

/// Bytes that are handed on without being copied: a record of a file, a member of an archive, a line.
namespace lockstep::data {

/// Memory that any number of `Bytes` and tensors point into; it is freed with the last of them.
class LOCKSTEP_API Buffer : public c10::intrusive_ptr_target {
 public:
  virtual const char* data() const = 0;
  virtual size_t size() const = 0;

  /// Returns `size` bytes of heap memory and, through `memory`, where to fill them in. Aligned as tensors are.
  static c10::intrusive_ptr<Buffer> allocate(size_t size, char** memory);

  /// Maps a file for reading, all of it. Throws DataError that names `operation` and the file. A file of no bytes gives
  /// an empty buffer. Whoever truncates a mapped file ends the processes that read it: write beside it and rename.
  static c10::intrusive_ptr<Buffer> map_file(const std::string& path, std::string_view operation);
};

/// A piece of a buffer: a cheap handle, copied with its buffer kept alive. Never changes. May be read by any thread.
///
/// ```
/// for (const Bytes& record : data::tfrecords("train.tfrecord")) std::cout << record.size() << '\n';
/// ```
class LOCKSTEP_API Bytes {
 public:
  Bytes() = default;
  /// Copies `text` into memory of its own.
  Bytes(std::string_view text);                                      // NOLINT: any text may stand for its bytes
  Bytes(const std::string& text) : Bytes(std::string_view(text)) {}  // NOLINT
  Bytes(const char* text) : Bytes(std::string_view(text)) {}         // NOLINT
  /// Points at `view`, which must lie inside `buffer`.
  Bytes(c10::intrusive_ptr<Buffer> buffer, std::string_view view) : buffer_(std::move(buffer)), view_(view) {}

  const char* data() const { return view_.data(); }
  size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  std::string_view view() const { return view_; }
  std::string str() const { return std::string(view_); }
  operator std::string_view() const { return view_; }  // NOLINT: bytes are read as any text is

  /// Returns the `count` bytes from `offset` on, in the same buffer.
  Bytes slice(size_t offset, size_t count) const { return {buffer_, view_.substr(offset, count)}; }

  const c10::intrusive_ptr<Buffer>& buffer() const { return buffer_; }

  friend bool operator==(const Bytes& a, const Bytes& b) { return a.view_ == b.view_; }

 private:
  c10::intrusive_ptr<Buffer> buffer_;
  std::string_view view_;
};

/// Prints as Python prints bytes: b'...'.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const Bytes& bytes);

}  // namespace lockstep::data
