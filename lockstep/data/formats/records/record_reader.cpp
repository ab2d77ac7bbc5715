#include "lockstep/data/formats/records/record_reader.h"

#include <bit>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/records/crc32c.h"
#include "lockstep/data/formats/stream/byte_stream.h"
#include "lockstep/data/formats/stream/files.h"
#include "lockstep/data/formats/stream/zlib_stream.h"

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
    : RecordReader(detail::map_whole(path, "tfrecords"), path, options) {}

RecordReader::RecordReader(Bytes contents, std::string name, RecordReaderOptions options)
    : file_(std::move(contents)), path_(std::move(name)), compression_(resolve(options.compression, file_)) {
  if (compression_ != Compression::None) stream_ = std::make_unique<detail::InflatedStream>(file_, compression_);
}

RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader& RecordReader::operator=(RecordReader&&) noexcept = default;

bool RecordReader::next(Bytes& record) {
  if (stream_ != nullptr) return next_inflated(record);
  std::string_view payload;
  uint32_t checksum = 0;
  if (!next_mapped(payload, checksum)) return false;
  check_payload(payload, checksum);
  record = Bytes(file_.buffer(), payload);
  finish_record(payload.size());
  return true;
}

int64_t RecordReader::skip(int64_t count) {
  int64_t skipped = 0;
  for (; skipped < count; ++skipped) {
    if (stream_ != nullptr) {
      if (!skip_inflated()) break;
      continue;
    }
    std::string_view payload;
    uint32_t checksum = 0;
    if (!next_mapped(payload, checksum)) break;
    finish_record(payload.size());
  }
  return skipped;
}

bool RecordReader::next_mapped(std::string_view& payload, uint32_t& checksum) {
  const std::string_view rest = file_.view().substr(offset_);
  if (rest.empty()) return false;
  if (rest.size() < kHeaderSize) refuse(kWhole);
  uint64_t length = 0;
  if (!parse_header(rest.data(), length)) refuse(kSoundLength);
  const uint64_t room = rest.size() - kHeaderSize;
  if (room < kChecksumSize || length > room - kChecksumSize) refuse(kWhole);
  payload = rest.substr(kHeaderSize, length);
  checksum = load<uint32_t>(payload.data() + payload.size());
  return true;
}

bool RecordReader::read_inflated_header(uint64_t& length) {
  LOCKSTEP_CHECK_DATA(failure_.empty(), failure_);
  char header[kHeaderSize];
  const size_t got = stream_->read(header, kHeaderSize);
  if (got == 0 && stream_->problem().empty()) return false;
  if (got < kHeaderSize) refuse(kWhole, stream_->problem());
  if (!parse_header(header, length)) refuse(kSoundLength);
  if (!stream_->may_hold(length)) refuse(kWhole, stream_->problem());
  return true;
}

bool RecordReader::next_inflated(Bytes& record) {
  uint64_t length = 0;
  if (!read_inflated_header(length)) return false;
  char* memory = nullptr;
  // Pages of this that the data do not reach are never touched, so a false length costs no memory.
  auto buffer = Buffer::allocate(length, &memory);
  char checksum[kChecksumSize];
  if (stream_->read(memory, length) < length || stream_->read(checksum, kChecksumSize) < kChecksumSize) {
    refuse(kWhole, stream_->problem());
  }
  const std::string_view payload(memory, length);
  check_payload(payload, load<uint32_t>(checksum));
  record = Bytes(std::move(buffer), payload);
  finish_record(length);
  return true;
}

bool RecordReader::skip_inflated() {
  uint64_t length = 0;
  if (!read_inflated_header(length)) return false;
  if (stream_->discard(length + kChecksumSize) < length + kChecksumSize) refuse(kWhole, stream_->problem());
  finish_record(length);
  return true;
}

void RecordReader::check_payload(std::string_view payload, uint32_t checksum) {
  if (masked_crc32c(payload) != checksum) refuse(kSoundChecksum);
}

void RecordReader::finish_record(uint64_t length) {
  offset_ += kHeaderSize + length + kChecksumSize;
  ++records_read_;
}

void RecordReader::refuse(std::string_view rule, std::string_view reason) {
  failure_ = c10::str("[tfrecords] ", rule, ": file=\"", path_, "\", offset=", offset_, ", record=", records_read_);
  if (compression_ != Compression::None) failure_ += c10::str(", compression=", compression_);
  if (!reason.empty()) failure_ += c10::str(" (", reason, ")");
  LOCKSTEP_THROW(DataError, failure_);
}

}  // namespace lockstep::data
