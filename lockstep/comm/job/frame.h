#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/api.h"

/// Framing of messages on a connection: a frame is four bytes of length, then the content.
namespace lockstep::comm::job {

/// The peer violates the protocol.
class LOCKSTEP_API ProtocolError : public std::runtime_error {
  using runtime_error::runtime_error;
};

/// The largest frame of a peer before its handshake is complete, and of a member.
constexpr size_t kPendingPeerLimit = 512;
constexpr size_t kMemberLimit = size_t{64} << 20;
/// How many bytes a connection may buffer: all values of a job can be sent at once.
constexpr size_t kUnsentLimit = size_t{512} << 20;

/// Returns a frame with this content.
LOCKSTEP_API std::string to_frame(std::string_view content);

/// Splits a stream of bytes into the contents of its frames.
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

/// Encodes fields: numbers in eight bytes, texts after their length.
class FieldWriter {
 public:
  FieldWriter& number(uint64_t value);
  FieldWriter& text(std::string_view value);
  std::string take() { return std::move(content_); }

 private:
  std::string content_;
};

/// Decodes fields. ProtocolError where they are missing, or where bytes are left at the end.
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
