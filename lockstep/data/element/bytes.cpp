#include "lockstep/data/element/bytes.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr size_t kAlignment = 64;

class HeapBuffer final : public Buffer {
 public:
  explicit HeapBuffer(size_t size)
      : size_(size), memory_(static_cast<char*>(std::aligned_alloc(kAlignment, round_up(size))), &std::free) {
    LOCKSTEP_CHECK_VALUE(memory_ != nullptr, "[data] no memory left for a buffer: bytes=", size);
  }
  const char* data() const override { return memory_.get(); }
  size_t size() const override { return size_; }
  bool is_writable() const override { return true; }
  char* memory() { return memory_.get(); }

 private:
  static size_t round_up(size_t size) { return (size / kAlignment + 1) * kAlignment; }

  size_t size_;
  std::unique_ptr<char, decltype(&std::free)> memory_;
};

}  // namespace

c10::intrusive_ptr<Buffer> Buffer::allocate(size_t size, char** memory) {
  auto buffer = c10::make_intrusive<HeapBuffer>(size);
  *memory = buffer->memory();
  return buffer;
}

c10::intrusive_ptr<Buffer> Buffer::private_pages(std::string_view) const { return {}; }

Bytes::Bytes(std::string_view text) {
  char* memory = nullptr;
  buffer_ = Buffer::allocate(text.size(), &memory);
  if (!text.empty()) std::memcpy(memory, text.data(), text.size());
  view_ = {memory, text.size()};
}

std::ostream& operator<<(std::ostream& out, const Bytes& bytes) {
  static constexpr std::array kDigits{'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
  out << "b'";
  for (const char c : bytes.view()) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\\' || c == '\'') {
      out << '\\' << c;
    } else if (code >= 0x20 && code < 0x7f) {
      out << c;
    } else if (c == '\n') {
      out << "\\n";
    } else if (c == '\t') {
      out << "\\t";
    } else if (c == '\r') {
      out << "\\r";
    } else {
      out << "\\x" << kDigits[code >> 4] << kDigits[code & 15];
    }
  }
  return out << '\'';
}

}  // namespace lockstep::data
