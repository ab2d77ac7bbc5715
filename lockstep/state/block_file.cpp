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
#include "lockstep/state/aligned_memory.h"

namespace lockstep::detail {
namespace {

/// How many parts of memory one call of the system fills.
constexpr size_t kScatterParts = 512;
/// Bytes that are read and then summed, fewer than a core's cache has.
constexpr size_t kSliceBytes = size_t{128} << 10;
/// A block whose bytes go to more places is read as a whole and then copied.
constexpr size_t kScatterLimit = 128;
/// Blocks that one direct read takes.
constexpr size_t kDirectBlocks = 4;

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

BlockFile::BlockFile(std::string path, std::vector<uint32_t> checksums, bool direct)
    : path_(std::move(path)), checksums_(std::move(checksums)) {
  // Without O_NONBLOCK a pipe would wait for its writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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
  if (direct && !checksums_.empty()) direct_descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
}

BlockFile::~BlockFile() {
  if (direct_descriptor_ >= 0) ::close(direct_descriptor_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void BlockFile::will_need(int64_t offset, int64_t num_bytes) const {
  if (direct_descriptor_ >= 0) return;
  ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(num_bytes), POSIX_FADV_WILLNEED);
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

// Fills the targets and returns the checksum of all bytes. Each byte is summed while it is in the cache.
uint32_t BlockFile::read_and_sum(int64_t offset, std::span<const std::span<char>> targets) const {
  uint32_t checksum = 0;
  std::vector<std::span<char>> slice;
  size_t slice_bytes = 0;
  const auto finish_slice = [&] {
    read_bytes(offset, slice);
    for (const std::span<char> part : slice) checksum = crc32c({part.data(), part.size()}, checksum);
    offset += static_cast<int64_t>(slice_bytes);
    slice.clear();
    slice_bytes = 0;
  };
  for (const std::span<char> target : targets) {
    for (size_t done = 0; done < target.size();) {
      const size_t count = std::min(target.size() - done, kSliceBytes - slice_bytes);
      slice.push_back(target.subspan(done, count));
      done += count;
      slice_bytes += count;
      if (slice_bytes == kSliceBytes) finish_slice();
    }
  }
  finish_slice();
  return checksum;
}

void BlockFile::check_block(int64_t block, uint32_t checksum) const {
  const int64_t begin = block * kBlockBytes;
  LOCKSTEP_CHECK_DATA(checksum == checksums_[static_cast<size_t>(block)], "[load] the file is damaged: file=\"", path_,
                      "\", the checksum of the bytes from ", begin, " to ", std::min(size_, begin + kBlockBytes),
                      " is wrong");
}

// Reads one block whole: what no range takes goes to `unwanted`, so that the checksum covers all bytes.
void BlockFile::read_block(const WantedBlock& block, std::vector<char>& unwanted) const {
  const int64_t begin = block.number * kBlockBytes;
  const int64_t end = std::min(size_, begin + kBlockBytes);
  const std::vector<Range>& ranges = block.ranges;
  const bool scattered = ranges.size() <= kScatterLimit;
  std::vector<std::span<char>> targets;
  if (unwanted.empty() && (ranges.size() != 1 || static_cast<int64_t>(ranges[0].target.size()) != end - begin)) {
    unwanted.resize(kBlockBytes);
  }
  int64_t position = begin;
  for (const Range& range : ranges) {
    if (!scattered) break;
    const auto gap = static_cast<size_t>(range.offset - position);
    targets.emplace_back(unwanted.data() + (position - begin), gap);
    targets.push_back(range.target);
    position = range.offset + static_cast<int64_t>(range.target.size());
  }
  if (position < end) targets.emplace_back(unwanted.data() + (position - begin), static_cast<size_t>(end - position));
  check_block(block.number, read_and_sum(begin, targets));
  if (scattered) return;
  for (const Range& range : ranges) {
    std::memcpy(range.target.data(), unwanted.data() + (range.offset - begin), range.target.size());
  }
}

// Returns false where the file system does not take direct reads.
bool BlockFile::fill_directly(int64_t begin, int64_t end, char* memory) const {
  for (int64_t position = begin; position < end;) {
    const int64_t rounded = (end - position + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    const ssize_t got = ::pread(direct_descriptor_, memory + (position - begin), static_cast<size_t>(rounded),
                                static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    // Behind a read that stops inside a page the next one is not aligned.
    const bool ends_well = got > 0 && (got % kDirectAlignment == 0 || position + got >= end);
    if (!ends_well) return false;
    position += got;
  }
  return true;
}

// Reads consecutive blocks at once, then verifies and copies them.
void BlockFile::read_directly(std::span<const WantedBlock> blocks) const {
  thread_local AlignedMemory memory;
  if (!memory) memory = aligned_memory(static_cast<int64_t>(kDirectBlocks) * kBlockBytes);
  std::vector<char> unwanted;
  for (size_t first = 0; first < blocks.size();) {
    size_t last = first + 1;
    while (last < blocks.size() && last - first < kDirectBlocks && blocks[last].number == blocks[last - 1].number + 1) {
      ++last;
    }
    const int64_t begin = blocks[first].number * kBlockBytes;
    const int64_t end = std::min(size_, (blocks[last - 1].number + 1) * kBlockBytes);
    const bool filled = memory && fill_directly(begin, end, memory.get());
    for (; first < last; ++first) {
      const WantedBlock& block = blocks[first];
      if (!filled) {
        read_block(block, unwanted);
        continue;
      }
      const char* const bytes = memory.get() + (block.number * kBlockBytes - begin);
      const auto size = static_cast<size_t>(std::min(kBlockBytes, size_ - block.number * kBlockBytes));
      check_block(block.number, crc32c({bytes, size}));
      for (const Range& range : block.ranges) {
        std::memcpy(range.target.data(), memory.get() + (range.offset - begin), range.target.size());
      }
    }
  }
}

std::vector<BlockFile::WantedBlock> BlockFile::blocks_of(std::span<const Range> ranges) {
  std::vector<WantedBlock> blocks;
  for (const Range& range : ranges) {
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
  int64_t last = 0;
  for (const Range& range : ranges) {
    const auto num_bytes = static_cast<int64_t>(range.target.size());
    LOCKSTEP_CHECK_DATA(range.offset >= 0 && num_bytes <= size_ && range.offset <= size_ - num_bytes,
                        "[load] the file ends too early: file=\"", path_, "\", offset=", range.offset,
                        ", bytes=", num_bytes, ", bytes of the file=", size_);
    LOCKSTEP_ASSERT(range.offset >= last, "ranges of a file overlap or are not ordered");
    last = range.offset + num_bytes;
  }
  if (checksums_.empty()) {
    for (const Range& range : ranges) read_bytes(range.offset, {&range.target, 1});
    return;
  }
  const std::vector<WantedBlock> blocks = blocks_of(ranges);
  if (direct_descriptor_ >= 0) return read_directly(blocks);
  std::vector<char> unwanted;
  for (const WantedBlock& block : blocks) read_block(block, unwanted);
}

void BlockFile::verify() const {
  constexpr int64_t kAhead = 4 * kBlockBytes;
  std::vector<char> buffer(static_cast<size_t>(std::min(size_, kBlockBytes)));
  for (int64_t offset = 0; offset < size_; offset += kBlockBytes) {
    will_need(offset + kBlockBytes, kAhead);
    const Range range{offset, {buffer.data(), static_cast<size_t>(std::min(kBlockBytes, size_ - offset))}};
    read({&range, 1});
  }
}

}  // namespace lockstep::detail
