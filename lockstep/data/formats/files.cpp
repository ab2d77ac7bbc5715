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

std::string partial_path(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  return c10::str(path, ".", ::getpid(), "-", count++, ".partial");
}

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

WholeFile::WholeFile(std::string path, std::string operation)
    : path_(std::move(path)), operation_(std::move(operation)), file_(partial_path(path_), operation_) {}

WholeFile::~WholeFile() {
  if (!completed()) ::unlink(file_.path().c_str());
}

void WholeFile::write(std::string_view bytes) {
  LOCKSTEP_CHECK_VALUE(!completed(), "[", operation_, "] the file is complete: file=\"", path_, "\"");
  file_.write(bytes);
  position_ += bytes.size();
}

void WholeFile::complete() {
  if (completed()) return;
  file_.flush();
  file_.close();
  LOCKSTEP_CHECK_DATA(std::rename(file_.path().c_str(), path_.c_str()) == 0, "[", operation_,
                      "] the file could not be renamed: from=\"", file_.path(), "\", to=\"", path_, "\" (",
                      std::strerror(errno), ")");
}

}  // namespace lockstep::data::detail
