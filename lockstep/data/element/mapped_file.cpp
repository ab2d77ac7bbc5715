#include "lockstep/data/element/mapped_file.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"

namespace lockstep::data::detail {
namespace {

/// Below this size, copying bytes takes less time than mapping their pages.
constexpr size_t kPagesPay = size_t{256} << 10;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int number() const { return number_; }
  bool stat(struct stat& status) const { return number_ >= 0 && ::fstat(number_, &status) == 0; }

 private:
  int number_;
};

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

/// A process may have 65,530 mappings, and large allocations and stacks of threads need them, too.
constexpr int64_t kMostPrivateMappings = 8192;
std::atomic<int64_t> num_private_mappings{0};

/// Pages of a file that are copied when they are written; `data` may begin inside the first one.
class PrivatePages final : public Buffer {
 public:
  PrivatePages(char* pages, size_t offset, size_t size, const std::string& description)
      : pages_(pages), offset_(offset), size_(size) {
    watched_.emplace(pages, offset + size, OnBusError::Die, description);
    ++num_private_mappings;
  }
  ~PrivatePages() override {
    watched_.reset();
    ::munmap(pages_, offset_ + size_);
    --num_private_mappings;
  }
  const char* data() const override { return pages_ + offset_; }
  size_t size() const override { return size_; }
  bool is_writable() const override { return true; }
  size_t held_bytes() const override { return 0; }

 private:
  char* pages_;
  size_t offset_;
  size_t size_;
  std::optional<WatchedPages> watched_;
};

class MappedFile final : public Buffer {
 public:
  MappedFile(std::string path, std::string_view operation, const struct stat& status, void* memory, MapMode mode)
      : path_(std::move(path)),
        operation_(operation),
        status_(status),
        memory_(static_cast<char*>(memory)),
        was_written_(mode == MapMode::Writable) {
    // The memory of a writable mapping is a user's tensor: nobody can check it after each use.
    watched_.emplace(memory_, size(), was_written_ ? OnBusError::Die : OnBusError::Note, description());
  }
  ~MappedFile() override {
    watched_.reset();
    ::munmap(memory_, size());
  }
  const char* data() const override { return memory_; }
  size_t size() const override { return static_cast<size_t>(status_.st_size); }
  size_t held_bytes() const override { return 0; }

  bool may_fail() const override { return true; }
  void check() const override {
    const auto failed_at = any_bus_error() ? watched_->failed_at() : std::nullopt;
    LOCKSTEP_CHECK_DATA(!failed_at, "[", operation_, "] the file could not be read while it was mapped: ", "file=\"",
                        path_, "\", offset=", *failed_at,
                        " (it was cut, or its storage failed); write a new file and rename it in place of changing "
                        "one, or set LOCKSTEP_FILE_ACCESS=read");
  }

  void check_length() const override {
    struct stat now {};
    if (was_written_ || watched_->failed_at() || ::stat(path_.c_str(), &now) != 0) return;
    const bool is_this = now.st_dev == status_.st_dev && now.st_ino == status_.st_ino;
    LOCKSTEP_CHECK_DATA(!is_this || now.st_size >= status_.st_size, "[", operation_,
                        "] the file was cut while it was mapped: ", "file=\"", path_, "\", offset=", now.st_size,
                        "; bytes behind it were read as zeros; write a new file and rename it in place of changing "
                        "one, or set LOCKSTEP_FILE_ACCESS=read");
  }

  c10::intrusive_ptr<Buffer> private_pages(std::string_view part) const override {
    if (was_written_ || part.size() < kPagesPay || num_private_mappings >= kMostPrivateMappings) return {};
    const OpenFile file(path_);  // not kept open: a pipeline may hold more files than a process may open
    struct stat now {};
    if (!file.stat(now) || !is_same_file(now, status_)) return {};
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = static_cast<size_t>(part.data() - memory_);
    const size_t offset = begin % page;
    void* pages = ::mmap(nullptr, offset + part.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                         file.number(), static_cast<off_t>(begin - offset));
    if (pages == MAP_FAILED) return {};
    return c10::make_intrusive<PrivatePages>(static_cast<char*>(pages), offset, part.size(), description());
  }

 private:
  std::string description() const { return c10::str("operation=", operation_, ", file=\"", path_, "\""); }

  std::string path_;
  std::string operation_;
  struct stat status_;
  char* memory_;
  bool was_written_;  // may have been written: its bytes need not be those of the file
  std::optional<WatchedPages> watched_;
};

}  // namespace

c10::intrusive_ptr<Buffer> map_pages(const std::string& path, std::string_view operation, MapMode mode) {
  const OpenFile file(path);
  struct stat status {};
  LOCKSTEP_CHECK_DATA(file.stat(status), "[", operation, "] the file must be readable: file=\"", path, "\" (",
                      std::strerror(errno), ")");
  LOCKSTEP_CHECK_DATA(S_ISREG(status.st_mode), "[", operation, "] must be a plain file: file=\"", path, "\"");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) {
    char* memory = nullptr;
    return Buffer::allocate(0, &memory);
  }
  // MAP_NORESERVE: a file may be larger than memory, and few of its pages are ever written.
  const bool writable = mode == MapMode::Writable;
  void* memory = ::mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0),
                        MAP_PRIVATE | (writable ? MAP_NORESERVE : 0), file.number(), 0);
  LOCKSTEP_CHECK_DATA(memory != MAP_FAILED, "[", operation, "] the file could not be mapped: file=\"", path,
                      "\", bytes=", size, " (", std::strerror(errno), ")");
  if (mode == MapMode::Sequential) ::madvise(memory, size, MADV_SEQUENTIAL);
  return c10::make_intrusive<MappedFile>(path, operation, status, memory, mode);
}

}  // namespace lockstep::data::detail

namespace lockstep::data {

c10::intrusive_ptr<Buffer> Buffer::map_file(const std::string& path, std::string_view operation) {
  return detail::map_pages(path, operation, detail::MapMode::Sequential);
}

}  // namespace lockstep::data
