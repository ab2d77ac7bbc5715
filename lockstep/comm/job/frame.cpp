#include "lockstep/comm/job/frame.h"

namespace lockstep::comm::job {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kNumberBytes = 8;

void append_big_endian(std::string& bytes, uint64_t value, size_t size) {
  for (size_t i = size; i-- > 0;) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t read_big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

}  // namespace

std::string to_frame(std::string_view content) {
  std::string frame;
  frame.reserve(kLengthBytes + content.size());
  append_big_endian(frame, content.size(), kLengthBytes);
  frame += content;
  return frame;
}

std::optional<std::string> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(taken_);
  if (rest.size() >= kLengthBytes) {
    const uint64_t length = read_big_endian(rest.substr(0, kLengthBytes));
    if (length > limit_) throw ProtocolError("it sent no message of a job");
    if (rest.size() >= kLengthBytes + length) {
      taken_ += kLengthBytes + length;
      return std::string(rest.substr(kLengthBytes, length));
    }
  }
  buffer_.erase(0, taken_);
  taken_ = 0;
  return std::nullopt;
}

FieldWriter& FieldWriter::number(uint64_t value) {
  append_big_endian(content_, value, kNumberBytes);
  return *this;
}

FieldWriter& FieldWriter::text(std::string_view value) {
  number(value.size());
  content_ += value;
  return *this;
}

std::string_view FieldReader::take(size_t size) {
  if (size > content_.size()) throw ProtocolError("it sent a message that ends too early");
  const std::string_view field = content_.substr(0, size);
  content_.remove_prefix(size);
  return field;
}

uint64_t FieldReader::number() { return read_big_endian(take(kNumberBytes)); }

uint64_t FieldReader::number_below(uint64_t end) {
  const uint64_t value = number();
  if (value >= end) throw ProtocolError("it sent a number out of range");
  return value;
}

std::string FieldReader::text() { return std::string(take(number())); }

void FieldReader::finish() const {
  if (!content_.empty()) throw ProtocolError("it sent a message that is too long");
}

}  // namespace lockstep::comm::job
