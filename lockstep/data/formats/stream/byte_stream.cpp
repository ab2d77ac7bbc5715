#include "lockstep/data/formats/stream/byte_stream.h"

#include <algorithm>
#include <utility>

#include "lockstep/data/formats/stream/file_blocks.h"
#include "lockstep/data/formats/stream/files.h"
#include "lockstep/data/formats/stream/zlib_stream.h"

namespace lockstep::data::detail {

StoredFile::StoredFile(const std::string& path, std::string_view operation, FileAccess access) {
  if (resolve_access(access, path) == FileAccess::Read) {
    blocks_ = std::make_unique<FileBlocks>(path, operation);
  } else {
    contents_ = map_whole(path, operation);
  }
}

ByteStream::ByteStream(StoredFile file, Compression compression) {
  if (compression == Compression::None) {
    size_ = file.blocks_ ? file.blocks_->left() : file.contents_.size();
    contents_ = std::move(file.contents_);
    source_ = std::move(file.blocks_);
    return;
  }
  if (!file.blocks_) file.blocks_ = std::make_unique<BytesInMemory>(std::move(file.contents_));
  source_ = std::make_unique<InflatedStream>(std::move(file.blocks_), compression);
}

void ByteStream::check_length() {
  checked_length_ = true;
  if (contents_.buffer()) contents_.buffer()->check_length();
}

void ByteStream::consume(size_t count) {
  if (source_) {
    source_->consume(count);
  } else {
    taken_ += count;
  }
}

uint64_t ByteStream::discard(uint64_t size) {
  if (source_) return source_->discard(size);
  const uint64_t skipped = std::min<uint64_t>(size, contents_.size() - taken_);
  taken_ += skipped;
  return skipped;
}

std::string_view ByteStream::rule() const {
  return size_ ? "the file must be readable" : "the compressed data must be sound";
}

}  // namespace lockstep::data::detail
