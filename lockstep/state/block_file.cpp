#include "lockstep/state/block_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"

namespace lockstep::detail {
namespace {

/// How many parts of memory one call of the system fills.
constexpr size_t kScatterParts = 512;
/// A block whose bytes go to more places is read as a whole and then copied.
constexpr size_t kScatterLimit = 128;

/// Drops the first `count` bytes of the list that begins at `first`; returns the new first one.
size_t drop_filled(std::vector<iovec>& parts, size_t first, size_t count) {
  while (first < parts.size() && count >= parts[first].iov_len) count -= parts[first++].iov_len;
  if (count > 0) {
    parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + count;
    parts[first].iov_len -= count;
  }
  return first;
}

}  // namespace

BlockFile::BlockFile(std::string path, std::vector<uint32_t> checksums)
    : path_(std::move(path)), checksums_(std::move(checksums)) {
  // Without O_NONBLOCK a pipe would wait for its writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ >= 0) ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  struct stat status {};
  const bool readable = descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0;
  const int error = errno;
  const bool plain = readable && S_ISREG(status.st_mode);
  size_ = static_cast<int64_t>(status.st_size);
  const size_t blocks = static_cast<size_t>((size_ + kBlockBytes - 1) / kBlockBytes);
  const bool matches = checksums_.empty() || checksums_.size() == blocks;
  if (descriptor_ >= 0 && !(plain && matches)) {
    ::close(descriptor_);
    descriptor_ = -1;
  }
  LOCKSTEP_CHECK_DATA(readable, "[load] the file must be readable: file=\"", path_, "\" (", std::strerror(error), ")");
  LOCKSTEP_CHECK_DATA(plain, "[load] must be a plain file: file=\"", path_, "\"");
  LOCKSTEP_CHECK_DATA(matches, "[load] the file must have a checksum for each block: file=\"", path_,
                      "\", bytes=", size_, ", checksums=", checksums_.size(), "; the file was cut or replaced");
}

BlockFile::~BlockFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// Fills the targets with consecutive bytes of the file.
void BlockFile::read_bytes(int64_t offset, std::span<const std::span<char>> targets) const {
  std::vector<iovec> parts;
  parts.reserve(targets.size());
  for (const std::span<char> target : targets) {
    if (!target.empty()) parts.push_back({target.data(), target.size()});
  }
  for (size_t first = 0; first < parts.size();) {
    const int count = static_cast<int>(std::min(kScatterParts, parts.size() - first));
    const ssize_t got = ::preadv(descriptor_, parts.data() + first, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    LOCKSTEP_CHECK_DATA(got >= 0, "[load] the file must be readable: file=\"", path_, "\", offset=", offset, " (",
                        std::strerror(errno), ")");
    LOCKSTEP_CHECK_DATA(got > 0, "[load] the file ends too early: file=\"", path_, "\", offset=", offset,
                        ", bytes when it was opened=", size_);
    offset += got;
    first = drop_filled(parts, first, static_cast<size_t>(got));
  }
}

// Without checksums blocks have no bytes but those of the ranges.
BlockFile::FilledBlock BlockFile::fill(const WantedBlock& block) const {
  FilledBlock filled{.number = block.number, .bytes = {}, .own_bytes = {}, .copies = {}};
  if (checksums_.empty()) {
    for (const Range& range : block.ranges) read_bytes(range.offset, {&range.target, 1});
    return filled;
  }
  const int64_t begin = block.number * kBlockBytes;
  const int64_t end = std::min(size_, begin + kBlockBytes);
  const bool scattered = block.ranges.size() <= kScatterLimit;
  auto num_own = static_cast<size_t>(end - begin);
  for (const Range& range : block.ranges) num_own -= scattered ? range.target.size() : 0;
  filled.own_bytes.resize(num_own);
  char* own = filled.own_bytes.data();
  const auto add_own = [&](int64_t from, int64_t to) {
    if (from < to) filled.bytes.emplace_back(own, static_cast<size_t>(to - from));
    own += to - from;
  };
  int64_t position = begin;
  for (const Range& range : block.ranges) {
    if (!scattered) break;
    add_own(position, range.offset);
    filled.bytes.push_back(range.target);
    position = range.offset + static_cast<int64_t>(range.target.size());
  }
  add_own(position, end);
  if (!scattered) filled.copies = block.ranges;
  read_bytes(begin, filled.bytes);
  return filled;
}

void BlockFile::finish(const FilledBlock& block) const {
  if (checksums_.empty()) return;
  const int64_t begin = block.number * kBlockBytes;
  uint32_t checksum = 0;
  for (const std::span<char> part : block.bytes) checksum = crc32c({part.data(), part.size()}, checksum);
  LOCKSTEP_CHECK_DATA(checksum == checksums_[static_cast<size_t>(block.number)], "[load] the file is damaged: file=\"",
                      path_, "\", the checksum of the bytes from ", begin, " to ", std::min(size_, begin + kBlockBytes),
                      " is wrong");
  for (const Range& range : block.copies) {
    std::memcpy(range.target.data(), block.own_bytes.data() + (range.offset - begin), range.target.size());
  }
}

std::vector<BlockFile::WantedBlock> BlockFile::blocks_of(std::span<const Range> ranges) const {
  int64_t last = 0;
  std::vector<WantedBlock> blocks;
  for (const Range& range : ranges) {
    const auto num_bytes = static_cast<int64_t>(range.target.size());
    LOCKSTEP_CHECK_DATA(range.offset >= 0 && num_bytes <= size_ && range.offset <= size_ - num_bytes,
                        "[load] the file ends too early: file=\"", path_, "\", offset=", range.offset,
                        ", bytes=", num_bytes, ", bytes of the file=", size_);
    LOCKSTEP_ASSERT(range.offset >= last, "ranges of a file overlap or are not ordered");
    last = range.offset + num_bytes;
    for (size_t done = 0; done < range.target.size();) {
      const int64_t offset = range.offset + static_cast<int64_t>(done);
      const int64_t number = offset / kBlockBytes;
      if (blocks.empty() || blocks.back().number != number) blocks.push_back({number, {}});
      const auto left = static_cast<size_t>((number + 1) * kBlockBytes - offset);
      const size_t count = std::min(range.target.size() - done, left);
      blocks.back().ranges.push_back({offset, range.target.subspan(done, count)});
      done += count;
    }
  }
  return blocks;
}

void BlockFile::read(std::span<const Range> ranges) const {
  for (const WantedBlock& block : blocks_of(ranges)) finish(fill(block));
}

void BlockFile::verify(progress::Task* task) const {
  std::vector<char> buffer(static_cast<size_t>(std::min(size_, kBlockBytes)));
  for (int64_t offset = 0; offset < size_; offset += kBlockBytes) {
    const Range range{offset, {buffer.data(), static_cast<size_t>(std::min(kBlockBytes, size_ - offset))}};
    read({&range, 1});
    if (task != nullptr) task->add(static_cast<int64_t>(range.target.size()));
  }
}

}  // namespace lockstep::detail
