#include "lockstep/data/formats/stream/file_blocks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {
namespace {

constexpr size_t kFileBlock = size_t{1} << 20;
/// How far the system reads ahead: enough for a round trip of 10 ms at 400 MB/s.
constexpr uint64_t kReadAhead = uint64_t{4} << 20;

}  // namespace

FileBlocks::FileBlocks(const std::string& path, std::string_view operation)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat status {};
  const bool readable = file_ >= 0 && ::fstat(file_, &status) == 0;
  const int error = errno;
  const bool plain = readable && S_ISREG(status.st_mode);
  if (!plain && file_ >= 0) ::close(file_);
  LOCKSTEP_CHECK_DATA(readable, "[", operation, "] the file must be readable: file=\"", path, "\" (",
                      std::strerror(error), ")");
  LOCKSTEP_CHECK_DATA(plain, "[", operation, "] must be a plain file: file=\"", path, "\"");
  size_ = static_cast<uint64_t>(status.st_size);
}

FileBlocks::~FileBlocks() { ::close(file_); }

std::string_view FileBlocks::peek() {
  const size_t rest = end_ - begin_;
  if (rest < kLeastBlock && position_ < size_ && problem_.empty()) {
    block_.resize(std::min<uint64_t>(kFileBlock, size_));
    if (rest > 0) std::memmove(block_.data(), block_.data() + begin_, rest);
    begin_ = 0;
    end_ = rest;
    end_ += read_at_position(block_.data() + rest, block_.size() - rest);
  }
  return {block_.data() + begin_, end_ - begin_};
}

size_t FileBlocks::read(char* out, size_t size) {
  const size_t buffered = std::min(size, end_ - begin_);
  if (buffered > 0) std::memcpy(out, block_.data() + begin_, buffered);
  consume(buffered);
  const size_t missing = size - buffered;
  if (missing < kFileBlock / 2) return buffered + StoredBytes::read(out + buffered, missing);
  return buffered + read_at_position(out + buffered, missing);  // past the block: one copy less
}

uint64_t FileBlocks::discard(uint64_t size) {
  const uint64_t skipped = std::min(size, left());
  const uint64_t buffered = std::min<uint64_t>(skipped, end_ - begin_);
  consume(buffered);
  position_ += skipped - buffered;
  return skipped;
}

// Returns fewer bytes at the end of the file and at an error, which becomes the problem.
size_t FileBlocks::read_at_position(char* out, size_t size) {
  if (!problem_.empty()) return 0;
  const uint64_t ahead = std::min(size_, position_ + size + kReadAhead);
  if (ahead > announced_) {
    const uint64_t from = std::max(announced_, position_);
    ::posix_fadvise(file_, static_cast<off_t>(from), static_cast<off_t>(ahead - from), POSIX_FADV_WILLNEED);
    announced_ = ahead;
  }
  size = std::min<uint64_t>(size, size_ - position_);
  size_t done = 0;
  while (done < size && problem_.empty()) {
    const ssize_t got = ::pread(file_, out + done, size - done, static_cast<off_t>(position_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) problem_ = c10::str("reading at ", position_, " failed: ", std::strerror(errno));
    if (got == 0)
      problem_ = c10::str("the file was cut while it was read: it had ", size_, " bytes and has ", position_);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
    position_ += static_cast<uint64_t>(got);
  }
  return done;
}

Bytes read_whole(const std::string& path, std::string_view operation) {
  FileBlocks file(path, operation);
  char* memory = nullptr;
  const auto size = static_cast<size_t>(file.left());
  auto buffer = Buffer::allocate(size, &memory);
  const size_t found = file.read(memory, size);
  LOCKSTEP_CHECK_DATA(found == size, "[", operation, "] the file must be readable: file=\"", path, "\" (",
                      file.problem(), ")");
  return {std::move(buffer), {memory, size}};
}

}  // namespace lockstep::data::detail
