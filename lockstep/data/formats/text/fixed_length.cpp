#include "lockstep/data/formats/text/fixed_length.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/skip_one_by_one.h"
#include "lockstep/data/formats/stream/byte_stream.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMost = int64_t{1} << 60;  // so that sums stay in range

void check(const FixedLengthOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.record_bytes > 0 && options.record_bytes < kMost,
                       "[fixed_length_records] must be positive: record_bytes=", options.record_bytes);
  LOCKSTEP_CHECK_VALUE(options.header_bytes >= 0 && options.header_bytes < kMost,
                       "[fixed_length_records] must not be negative: header_bytes=", options.header_bytes);
  LOCKSTEP_CHECK_VALUE(options.footer_bytes >= 0 && options.footer_bytes < kMost,
                       "[fixed_length_records] must not be negative: footer_bytes=", options.footer_bytes);
}

}  // namespace

FixedLengthReader::FixedLengthReader(std::string path, FixedLengthOptions options)
    : FixedLengthReader(detail::StoredFile(path, "fixed_length_records", options.access), path, options) {}

FixedLengthReader::FixedLengthReader(Bytes contents, std::string name, FixedLengthOptions options)
    : FixedLengthReader(detail::StoredFile(std::move(contents)), std::move(name), options) {}

FixedLengthReader::FixedLengthReader(detail::StoredFile file, std::string name, FixedLengthOptions options)
    : path_(std::move(name)), options_(options) {
  check(options_);
  const Compression compression = detail::resolve_by_gzip_magic(options_.compression, file.head());
  stream_ = std::make_unique<detail::ByteStream>(std::move(file), compression);
  if (!stream_->size()) return;
  check_size(*stream_->size());
  stream_->discard(options_.header_bytes);
}

FixedLengthReader::~FixedLengthReader() = default;
FixedLengthReader::FixedLengthReader(FixedLengthReader&&) noexcept = default;
FixedLengthReader& FixedLengthReader::operator=(FixedLengthReader&&) noexcept = default;

bool FixedLengthReader::next(Bytes& record) {
  if (stream_->in_blocks()) return next_of_blocks(record);
  const std::string_view rest = stream_->peek();
  if (rest.size() <= static_cast<size_t>(options_.footer_bytes)) return false;
  record = Bytes(stream_->contents().buffer(), rest.substr(0, options_.record_bytes));
  stream_->consume(options_.record_bytes);
  ++records_read_;
  return true;
}

int64_t FixedLengthReader::skip(int64_t count) {
  if (stream_->size() && !ended_) {
    const auto unread = static_cast<int64_t>(*stream_->size() - stream_->offset() + pending_.size());
    const int64_t left = (unread - options_.footer_bytes) / options_.record_bytes;
    const int64_t skipped = std::clamp<int64_t>(count, 0, left);
    const auto bytes = static_cast<uint64_t>(skipped * options_.record_bytes);
    const uint64_t buffered = std::min<uint64_t>(bytes, pending_.size());
    pending_.erase(0, buffered);
    stream_->discard(bytes - buffered);
    records_read_ += skipped;
    return skipped;
  }
  Bytes record;
  return detail::skip_one_by_one(count, [&] { return next(record); });
}

// Makes `pending_` as long as `size`, or as long as the data last.
bool FixedLengthReader::fill(size_t size) {
  while (pending_.size() < size) {
    const std::string_view block = stream_->peek().substr(0, size - pending_.size());
    if (block.empty()) return false;
    pending_ += block;
    stream_->consume(block.size());
  }
  return true;
}

bool FixedLengthReader::next_of_blocks(Bytes& record) {
  if (ended_) return false;
  if (!stream_->size() && stream_->offset() < static_cast<uint64_t>(options_.header_bytes)) {
    if (fill(options_.header_bytes)) pending_.clear();
  }
  if (!fill(options_.record_bytes + options_.footer_bytes)) {
    ended_ = true;
    LOCKSTEP_CHECK_DATA(stream_->problem().empty(), "[fixed_length_records] ", stream_->rule(), ": file=\"", path_,
                        "\", record=", records_read_++, " (", stream_->problem(), ")");
    check_size(stream_->offset());
    return false;
  }
  record = Bytes(std::string_view(pending_).substr(0, options_.record_bytes));
  pending_.erase(0, options_.record_bytes);
  ++records_read_;
  return true;
}

void FixedLengthReader::check_size(uint64_t size) const {
  const uint64_t around = options_.header_bytes + options_.footer_bytes;
  LOCKSTEP_CHECK_DATA(size >= around && (size - around) % options_.record_bytes == 0,
                      "[fixed_length_records] the file must be a header, whole records and a footer: file=\"", path_,
                      "\", bytes=", size, ", header_bytes=", options_.header_bytes,
                      ", record_bytes=", options_.record_bytes, ", footer_bytes=", options_.footer_bytes,
                      ", left over=", size >= around ? (size - around) % options_.record_bytes : size);
}

}  // namespace lockstep::data
