#include "lockstep/data/formats/records/record_reader.h"

#include <bit>
#include <cstring>
#include <utility>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/data/formats/skip_one_by_one.h"
#include "lockstep/data/formats/stream/byte_stream.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are taken as they lie in the file");

constexpr size_t kLengthSize = sizeof(uint64_t);
constexpr size_t kChecksumSize = sizeof(uint32_t);
constexpr size_t kHeaderSize = kLengthSize + kChecksumSize;

constexpr std::string_view kSoundChecksum = "the record's checksum must match";
constexpr std::string_view kSoundLength = "the checksum of the record's length must match";
constexpr std::string_view kWhole = "the file must not end inside a record";

template <class T>
T load(const char* data) {
  T value{};
  std::memcpy(&value, data, sizeof(value));
  return value;
}

// Takes the length from `header`, all of it; false where its checksum is another.
bool parse_header(const char* header, uint64_t& length) {
  length = load<uint64_t>(header);
  return masked_crc32c({header, kLengthSize}) == load<uint32_t>(header + kLengthSize);
}

Compression resolve(Compression asked, std::string_view data) {
  if (asked != Compression::Auto) return asked;
  uint64_t length = 0;
  if (data.size() >= kHeaderSize && parse_header(data.data(), length)) return Compression::None;
  if (detail::begins_as_gzip(data)) return Compression::Gzip;
  return detail::begins_as_zlib(data) ? Compression::Zlib : Compression::None;
}

}  // namespace

RecordReader::RecordReader(std::string path, RecordReaderOptions options)
    : RecordReader(detail::StoredFile(path, "tfrecords", options.access), path, options) {}

RecordReader::RecordReader(Bytes contents, std::string name, RecordReaderOptions options)
    : RecordReader(detail::StoredFile(std::move(contents)), std::move(name), options) {}

RecordReader::RecordReader(detail::StoredFile file, std::string name, RecordReaderOptions options)
    : path_(std::move(name)), compression_(resolve(options.compression, file.head())) {
  stream_ = std::make_unique<detail::ByteStream>(std::move(file), compression_);
}

RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader& RecordReader::operator=(RecordReader&&) noexcept = default;

bool RecordReader::next(Bytes& record) {
  if (ended_) return false;
  if (stream_->in_blocks()) return next_of_blocks(record);
  std::string_view payload;
  uint32_t checksum = 0;
  if (!next_in_memory(payload, checksum)) return false;
  finish_record(payload, checksum);
  record = Bytes(stream_->contents().buffer(), payload);
  return true;
}

int64_t RecordReader::skip(int64_t count) {
  return detail::skip_one_by_one(count, [this] { return skip_one(); });
}

bool RecordReader::skip_one() {
  if (ended_) return false;
  uint64_t length = 0;
  if (!stream_->in_blocks()) {
    std::string_view payload;
    uint32_t checksum = 0;
    if (!next_in_memory(payload, checksum)) return false;
    length = payload.size();
  } else {
    if (!read_header(length)) return false;
    if (stream_->discard(length + kChecksumSize) < length + kChecksumSize) end_with(kWhole, stream_->problem());
  }
  finish_record(length);
  return true;
}

bool RecordReader::next_in_memory(std::string_view& payload, uint32_t& checksum) {
  const std::string_view rest = stream_->contents().view().substr(offset_);
  if (rest.empty()) return false;
  if (rest.size() < kHeaderSize) end_with(kWhole);
  uint64_t length = 0;
  if (!parse_header(rest.data(), length)) end_with(kSoundLength);
  const uint64_t room = rest.size() - kHeaderSize;
  if (room < kChecksumSize || length > room - kChecksumSize) end_with(kWhole);
  payload = rest.substr(kHeaderSize, length);
  checksum = load<uint32_t>(payload.data() + payload.size());
  return true;
}

bool RecordReader::read_header(uint64_t& length) {
  char header[kHeaderSize];
  const size_t got = stream_->read(header, kHeaderSize);
  if (got == 0 && stream_->problem().empty()) return false;
  if (got < kHeaderSize) end_with(kWhole, stream_->problem());
  if (!parse_header(header, length)) end_with(kSoundLength);
  if (!stream_->may_hold(length)) end_with(kWhole, stream_->problem());
  return true;
}

bool RecordReader::next_of_blocks(Bytes& record) {
  uint64_t length = 0;
  if (!read_header(length)) return false;
  char* memory = nullptr;
  // Pages of this that the data do not reach are never touched, so a false length costs no memory.
  auto buffer = Buffer::allocate(length, &memory);
  char checksum[kChecksumSize];
  if (stream_->read(memory, length) < length || stream_->read(checksum, kChecksumSize) < kChecksumSize) {
    end_with(kWhole, stream_->problem());
  }
  const std::string_view payload(memory, length);
  finish_record(payload, load<uint32_t>(checksum));
  record = Bytes(std::move(buffer), payload);
  return true;
}

void RecordReader::finish_record(uint64_t length) {
  offset_ += kHeaderSize + length + kChecksumSize;
  ++records_read_;
}

// The next record is behind this one, whether its payload is sound or not.
void RecordReader::finish_record(std::string_view payload, uint32_t checksum) {
  const bool sound = masked_crc32c(payload) == checksum;
  if (!sound) check_pages();
  const std::string message = sound ? "" : damage(kSoundChecksum);
  finish_record(payload.size());
  LOCKSTEP_CHECK_DATA(sound, message);
}

std::string RecordReader::damage(std::string_view rule, std::string_view reason) const {
  std::string text =
      c10::str("[tfrecords] ", rule, ": file=\"", path_, "\", offset=", offset_, ", record=", records_read_);
  if (compression_ != Compression::None) text += c10::str(", compression=", compression_);
  if (!reason.empty()) text += c10::str(" (", reason, ")");
  return text;
}

// Pages of a mapped file that could not be read are full of zeros.
void RecordReader::check_pages() {
  if (stream_->in_blocks() || stream_->contents().buffer() == nullptr) return;
  ended_ = true;
  stream_->contents().buffer()->check();
  ended_ = false;
}

void RecordReader::end_with(std::string_view rule, std::string_view reason) {
  check_pages();
  const std::string message = damage(rule, reason);
  ended_ = true;
  ++records_read_;
  LOCKSTEP_THROW(DataError, message);
}

}  // namespace lockstep::data
