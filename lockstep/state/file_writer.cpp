#include "lockstep/state/file_writer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <optional>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/state/aligned_memory.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/checkpoint_folder.h"

namespace lockstep::detail {
namespace {

/// Bytes that one thread writes at a time: a multiple of the block.
constexpr int64_t kChunkBytes = 4 * kBlockBytes;
/// Aligned memory of at least this size is written from where it is; the rest is copied to a buffer.
constexpr int64_t kLeastInPlace = int64_t{64} << 10;
constexpr size_t kMostWriters = 2;

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }

  int get() const { return number_; }
  bool close() {
    const bool closed = number_ < 0 || ::close(number_) == 0;
    number_ = -1;
    return closed;
  }

 private:
  int number_;
};

std::vector<std::string_view> joined_in_memory(const std::vector<std::string_view>& parts) {
  std::vector<std::string_view> joined;
  for (const std::string_view part : parts) {
    if (!joined.empty() && joined.back().data() + joined.back().size() == part.data()) {
      joined.back() = {joined.back().data(), joined.back().size() + part.size()};
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

/// Whether direct I/O can write this memory at this position of the file.
bool is_in_place(const iovec& part, int64_t position) {
  return position % kDirectAlignment == 0 &&
         reinterpret_cast<uintptr_t>(part.iov_base) % static_cast<uintptr_t>(kDirectAlignment) == 0 &&
         static_cast<int64_t>(part.iov_len) >= kLeastInPlace;
}

/// A file that several threads write, chunk by chunk.
class FileWriter {
 public:
  FileWriter(const std::string& path, const std::vector<std::string_view>& bytes, bool direct, progress::Task* task);
  ~FileWriter();

  std::vector<uint32_t> run(bool sync);

 private:
  void work();
  void write_chunk(int64_t chunk, AlignedMemory& buffer);
  void write_directly(int64_t begin, int64_t end, AlignedMemory& buffer);
  int64_t end_of_copied(int64_t begin, int64_t end) const;
  const char* copied(int64_t begin, int64_t end, AlignedMemory& buffer) const;
  int64_t write_aligned(const char* from, int64_t begin, int64_t end);
  void write_normally(int64_t begin, int64_t end);
  std::vector<iovec> parts_of(int64_t begin, int64_t end) const;
  void refuse(int error) const;
  void fail(const std::string& text);

  const std::string& path_;
  /// Parts of memory, of which none goes on where the one before ends.
  std::vector<std::string_view> bytes_;
  /// The position of each part, and the end.
  std::vector<int64_t> starts_;
  int64_t size_ = 0;
  FileDescriptor file_;
  FileDescriptor direct_file_;
  std::vector<uint32_t> checksums_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> direct_;
  std::atomic<bool> failed_ = false;
  bool complete_ = false;
  progress::Task* task_;
  std::mutex mutex_;
  std::optional<std::string> failure_;
};

FileWriter::FileWriter(const std::string& path, const std::vector<std::string_view>& bytes, bool direct,
                       progress::Task* task)
    : path_(path),
      bytes_(joined_in_memory(bytes)),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)),
      direct_file_(direct && file_.get() >= 0 ? ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC) : -1),
      direct_(direct_file_.get() >= 0),
      task_(task) {
  complete_ = file_.get() < 0;
  if (file_.get() < 0) refuse(errno);
  starts_.push_back(0);
  for (const std::string_view part : bytes_) starts_.push_back(starts_.back() + static_cast<int64_t>(part.size()));
  size_ = starts_.back();
  checksums_.resize(static_cast<size_t>((size_ + kBlockBytes - 1) / kBlockBytes));
}

FileWriter::~FileWriter() {
  if (!complete_) ::unlink(path_.c_str());
}

void FileWriter::refuse(int error) const {
  LOCKSTEP_THROW(DataError, "[save] the file must be writable: file=\"", path_, "\" (", std::strerror(error), ")");
}

void FileWriter::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = text;
  failed_ = true;
}

std::vector<uint32_t> FileWriter::run(bool sync) {
  // Finds out early that there is no space, and lets threads write without waiting for each other.
  if (size_ > 0 && ::fallocate(file_.get(), 0, 0, static_cast<off_t>(size_)) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS && errno != EINVAL) {
    refuse(errno);
  }
  const int64_t chunks = (size_ + kChunkBytes - 1) / kChunkBytes;
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min<size_t>(kMostWriters, static_cast<size_t>(chunks)); ++i) {
    others.emplace_back([this] { work(); });
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (failure_) LOCKSTEP_THROW(DataError, *failure_);
  if (sync && ::fdatasync(file_.get()) != 0) refuse(errno);
  if (!file_.close()) refuse(errno);
  complete_ = true;
  return std::move(checksums_);
}

void FileWriter::work() {
  AlignedMemory buffer;
  for (int64_t begin = next_.fetch_add(kChunkBytes); begin < size_ && !failed_; begin = next_.fetch_add(kChunkBytes)) {
    try {
      write_chunk(begin, buffer);
      if (task_ != nullptr) task_->add(std::min(size_, begin + kChunkBytes) - begin);
    } catch (const c10::Error& error) {
      fail(error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }
}

std::vector<iovec> FileWriter::parts_of(int64_t begin, int64_t end) const {
  std::vector<iovec> parts;
  auto i = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) - 1;
  for (; begin < end; ++i) {
    const int64_t count = std::min(end, starts_[i + 1]) - begin;
    if (count <= 0) continue;
    const char* const from = bytes_[i].data() + (begin - starts_[i]);
    parts.push_back({const_cast<char*>(from), static_cast<size_t>(count)});
    begin += count;
  }
  return parts;
}

void FileWriter::write_chunk(int64_t begin, AlignedMemory& buffer) {
  const int64_t end = std::min(size_, begin + kChunkBytes);
  const int64_t aligned_end = end / kDirectAlignment * kDirectAlignment;
  if (direct_ && aligned_end > begin) {
    write_directly(begin, aligned_end, buffer);
  } else {
    write_normally(begin, aligned_end);
  }
  write_normally(aligned_end, end);
  for (int64_t block = begin; block < end; block += kBlockBytes) {
    uint32_t checksum = 0;
    for (const iovec& part : parts_of(block, std::min(end, block + kBlockBytes))) {
      checksum = crc32c({static_cast<const char*>(part.iov_base), part.iov_len}, checksum);
    }
    checksums_[static_cast<size_t>(block / kBlockBytes)] = checksum;
  }
}

void FileWriter::write_directly(int64_t begin, int64_t end, AlignedMemory& buffer) {
  while (begin < end && direct_) {
    const iovec first = parts_of(begin, end).front();
    const bool in_place = is_in_place(first, begin);
    const int64_t whole_pages = static_cast<int64_t>(first.iov_len) / kDirectAlignment * kDirectAlignment;
    const int64_t next = in_place ? begin + whole_pages : end_of_copied(begin, end);
    const char* const from = in_place ? static_cast<const char*>(first.iov_base) : copied(begin, next, buffer);
    begin = write_aligned(from, begin, next);
  }
  write_normally(begin, end);
}

// Where the next part begins that is written in place.
int64_t FileWriter::end_of_copied(int64_t begin, int64_t end) const {
  int64_t position = begin;
  for (const iovec& part : parts_of(begin, end)) {
    if (position > begin && is_in_place(part, position)) return position;
    position += static_cast<int64_t>(part.iov_len);
  }
  return end;
}

const char* FileWriter::copied(int64_t begin, int64_t end, AlignedMemory& buffer) const {
  if (!buffer) buffer = aligned_memory(kChunkBytes);
  LOCKSTEP_CHECK_DATA(buffer, "[save] there is no memory for writing: file=\"", path_, "\", bytes=", kChunkBytes);
  char* place = buffer.get();
  for (const iovec& part : parts_of(begin, end)) {
    std::memcpy(place, part.iov_base, part.iov_len);
    place += part.iov_len;
  }
  return buffer.get();
}

// Returns the position up to which the file was written: not `end` where the file system does not take direct writes.
int64_t FileWriter::write_aligned(const char* from, int64_t begin, int64_t end) {
  while (begin < end) {
    const ssize_t written =
        ::pwrite(direct_file_.get(), from, static_cast<size_t>(end - begin), static_cast<off_t>(begin));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL) {
      direct_ = false;  // this file system, or this alignment, does not take it
      return begin;
    }
    if (written <= 0) refuse(written < 0 ? errno : ENOSPC);
    from += written;
    begin += written;
    if (begin % kDirectAlignment != 0) {
      const int64_t page_end = std::min(end, (begin / kDirectAlignment + 1) * kDirectAlignment);
      write_normally(begin, page_end);
      from += page_end - begin;
      begin = page_end;
    }
  }
  return end;
}

void FileWriter::write_normally(int64_t begin, int64_t end) {
  constexpr size_t kGatherParts = 512;
  while (begin < end) {
    const std::vector<iovec> parts = parts_of(begin, end);
    const int count = static_cast<int>(std::min(parts.size(), kGatherParts));
    const ssize_t written = ::pwritev(file_.get(), parts.data(), count, static_cast<off_t>(begin));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) refuse(written < 0 ? errno : ENOSPC);
    begin += written;
  }
}

}  // namespace

std::vector<uint32_t> write_file(const std::string& path, const std::vector<std::string_view>& bytes, bool sync,
                                 bool direct, progress::Task* task) {
  return FileWriter(path, bytes, direct, task).run(sync);
}

void replace_file(const std::string& path, std::string_view text, bool sync) {
  const std::string temporary = path + ".writing";
  ::unlink(temporary.c_str());
  write_file(temporary, {text}, sync, false);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    LOCKSTEP_THROW(DataError, "[save] the file must be writable: file=\"", path, "\" (", std::strerror(error), ")");
  }
}

void sync_folder(const std::string& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  LOCKSTEP_CHECK_DATA(opened.get() >= 0 && ::fsync(opened.get()) == 0, "[save] the folder must be writable: folder=\"",
                      folder, "\" (", std::strerror(errno), ")");
}

}  // namespace lockstep::detail
