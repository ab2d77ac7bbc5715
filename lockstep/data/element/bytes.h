#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <c10/util/intrusive_ptr.h>

#include "lockstep/api.h"

/// Shared, immutable bytes: a record of a file, a member of an archive, a line. Passing them on copies nothing.
namespace lockstep::data {

/// Memory that any number of `Bytes` and tensors point into; it is freed with the last of them.
class LOCKSTEP_API Buffer : public c10::intrusive_ptr_target {
 public:
  virtual const char* data() const = 0;
  virtual size_t size() const = 0;

  /// Whether the only holder of the buffer may write to its memory.
  virtual bool is_writable() const { return false; }
  /// How many bytes of memory live only as long as the buffer: none for pages of a file, nor for memory of a tensor
  /// that lives elsewhere.
  virtual size_t held_bytes() const { return size(); }
  /// Returns the bytes `part` of the buffer in pages of their own, which are copied when they are written: a buffer
  /// that is writable and costs no copy. Null where a copy is cheaper, or there is no file that has the pages.
  virtual c10::intrusive_ptr<Buffer> private_pages(std::string_view part) const;
  /// Whether `check` may throw: pages of a file.
  virtual bool may_fail() const { return false; }
  /// Throws DataError where pages of a file could not be read since they were mapped: what was read from them is not
  /// what the file had. To be called after reading.
  virtual void check() const {}
  /// Throws DataError where the file has become shorter: the rest of its last page reads as zeros, without a failure.
  virtual void check_length() const {}

  /// Returns a buffer of `size` bytes on the heap, and its writable address in `memory`. Aligned like tensors.
  static c10::intrusive_ptr<Buffer> allocate(size_t size, char** memory);

  /// Maps a whole file for reading. Throws DataError that names `operation` and the file. An empty file gives an empty
  /// buffer. A mapped file must not be cut: write a new file and rename it. See `check`.
  static c10::intrusive_ptr<Buffer> map_file(const std::string& path, std::string_view operation);
};

/// A part of a buffer: a cheap immutable handle that shares ownership of the buffer. Any thread may read it.
///
/// ```
/// for (const Bytes& record : data::tfrecords("train.tfrecord")) std::cout << record.size() << '\n';
/// ```
class LOCKSTEP_API Bytes {
 public:
  Bytes() = default;
  /// Copies `text` into memory of its own.
  Bytes(std::string_view text);                                      // NOLINT: texts convert implicitly
  Bytes(const std::string& text) : Bytes(std::string_view(text)) {}  // NOLINT
  Bytes(const char* text) : Bytes(std::string_view(text)) {}         // NOLINT
  /// Refers to `view`, which must lie inside `buffer`.
  Bytes(c10::intrusive_ptr<Buffer> buffer, std::string_view view) : buffer_(std::move(buffer)), view_(view) {}

  const char* data() const { return view_.data(); }
  size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  std::string_view view() const { return view_; }
  std::string str() const { return std::string(view_); }
  operator std::string_view() const { return view_; }  // NOLINT: bytes convert to texts implicitly

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
