#include "lockstep/data/element/bytes.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  char* memory() { return memory_.get(); }

 private:
  static size_t round_up(size_t size) { return (size / kAlignment + 1) * kAlignment; }

  size_t size_;
  std::unique_ptr<char, decltype(&std::free)> memory_;
};

class MappedFile final : public Buffer {
 public:
  MappedFile(void* memory, size_t size) : memory_(memory), size_(size) {}
  ~MappedFile() override { ::munmap(memory_, size_); }
  const char* data() const override { return static_cast<const char*>(memory_); }
  size_t size() const override { return size_; }

 private:
  void* memory_;
  size_t size_;
};

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

c10::intrusive_ptr<Buffer> Buffer::allocate(size_t size, char** memory) {
  auto buffer = c10::make_intrusive<HeapBuffer>(size);
  *memory = buffer->memory();
  return buffer;
}

c10::intrusive_ptr<Buffer> Buffer::map_file(const std::string& path, std::string_view operation) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  LOCKSTEP_CHECK_DATA(file.number() >= 0, "[", operation, "] the file must be readable: file=\"", path, "\" (",
                      std::strerror(errno), ")");
  struct stat status {};
  LOCKSTEP_CHECK_DATA(::fstat(file.number(), &status) == 0, "[", operation, "] the file must be readable: file=\"",
                      path, "\" (", std::strerror(errno), ")");
  LOCKSTEP_CHECK_DATA(S_ISREG(status.st_mode), "[", operation, "] must be a plain file: file=\"", path, "\"");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return c10::make_intrusive<HeapBuffer>(0);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  LOCKSTEP_CHECK_DATA(memory != MAP_FAILED, "[", operation, "] the file could not be mapped: file=\"", path,
                      "\", bytes=", size, " (", std::strerror(errno), ")");
  ::madvise(memory, size, MADV_SEQUENTIAL);
  return c10::make_intrusive<MappedFile>(memory, size);
}

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
