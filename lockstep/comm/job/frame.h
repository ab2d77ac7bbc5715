#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/api.h"

/// How bytes on a connection become messages: each is a frame, four bytes of length and so many bytes of content.
namespace lockstep::comm::job {

/// The peer does not speak this protocol.
class LOCKSTEP_API ProtocolError : public std::runtime_error {
  using runtime_error::runtime_error;
};

/// What a peer may send at once before it has proved that it belongs here, and afterwards.
constexpr size_t kStrangerLimit = 512;
constexpr size_t kMemberLimit = size_t{64} << 20;

/// Returns the frame of this content.
LOCKSTEP_API std::string to_frame(std::string_view content);

/// Cuts a stream of bytes into the contents of its frames.
class LOCKSTEP_API FrameReader {
 public:
  explicit FrameReader(size_t limit) : limit_(limit) {}

  void set_limit(size_t limit) { limit_ = limit; }
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  /// Returns the next content, or nothing while it is not complete. ProtocolError as soon as a length is over the
  /// limit.
  std::optional<std::string> next();

 private:
  size_t limit_;
  std::string buffer_;
  size_t taken_ = 0;
};

/// Puts fields one after another: numbers in eight bytes, texts after their length.
class FieldWriter {
 public:
  FieldWriter& number(uint64_t value);
  FieldWriter& text(std::string_view value);
  std::string take() { return std::move(content_); }

 private:
  std::string content_;
};

/// Takes them out again. ProtocolError where they are not there, or where something is left at the end.
class FieldReader {
 public:
  explicit FieldReader(std::string_view content) : content_(content) {}

  uint64_t number();
  /// A number that must be below `end`.
  uint64_t number_below(uint64_t end);
  std::string text();
  void finish() const;

 private:
  std::string_view take(size_t size);

  std::string_view content_;
};

}  // namespace lockstep::comm::job
