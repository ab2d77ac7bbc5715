#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/files_impl.h"

namespace lockstep::data::detail {
namespace {

constexpr size_t kPendingBytes = size_t{256} << 10;

class PrivateMap final : public Buffer {
 public:
  PrivateMap(void* memory, size_t size) : memory_(memory), size_(size) {}
  ~PrivateMap() override { ::munmap(memory_, size_); }
  const char* data() const override { return static_cast<const char*>(memory_); }
  size_t size() const override { return size_; }

 private:
  void* memory_;
  size_t size_;
};

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

c10::intrusive_ptr<Buffer> map_private(const std::string& path, std::string_view operation) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat status {};
  const bool readable = file.number >= 0 && ::fstat(file.number, &status) == 0;
  LOCKSTEP_CHECK_DATA(readable, "[", operation, "] the file must be readable: file=\"", path, "\" (",
                      std::strerror(errno), ")");
  LOCKSTEP_CHECK_DATA(S_ISREG(status.st_mode), "[", operation, "] must be a plain file: file=\"", path, "\"");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) {
    char* memory = nullptr;
    return Buffer::allocate(0, &memory);
  }
  // Without a reservation, as a file may be larger than memory and hardly any of its pages are ever written.
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number, 0);
  LOCKSTEP_CHECK_DATA(memory != MAP_FAILED, "[", operation, "] the file could not be mapped: file=\"", path,
                      "\", bytes=", size, " (", std::strerror(errno), ")");
  return c10::make_intrusive<PrivateMap>(memory, size);
}

OutputFile::OutputFile(std::string path, std::string operation)
    : path_(std::move(path)), operation_(std::move(operation)) {
  static std::atomic<uint64_t> count{0};
  partial_path_ = c10::str(path_, ".", ::getpid(), "-", count++, ".partial");
  descriptor_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("could not be made");
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_path_.c_str());
}

void OutputFile::fail(std::string_view what) const {
  const int code = errno;
  throw DataError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                  c10::str("[", operation_, "] the file ", what, ": file=\"", path_, "\" (", std::strerror(code), ")"));
}

void OutputFile::write(std::string_view bytes) {
  LOCKSTEP_CHECK_VALUE(!completed(), "[", operation_, "] the file is complete: file=\"", path_, "\"");
  position_ += bytes.size();
  if (pending_.size() + bytes.size() <= kPendingBytes) {
    pending_ += bytes;
    return;
  }
  write_out(pending_);
  pending_.clear();
  if (bytes.size() >= kPendingBytes) {
    write_out(bytes);
  } else {
    pending_ = bytes;
  }
}

void OutputFile::write_out(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("could not be written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void OutputFile::complete() {
  if (completed()) return;
  write_out(pending_);
  pending_.clear();
  // A full disk may show only now.
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed == 0 && std::rename(partial_path_.c_str(), path_.c_str()) == 0) return;
  const int code = errno;
  ::unlink(partial_path_.c_str());
  errno = code;
  fail("could not be completed");
}

}  // namespace lockstep::data::detail
