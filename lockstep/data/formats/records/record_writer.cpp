#include "lockstep/data/formats/records/record_writer.h"

#include <cstring>
#include <utility>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/data/formats/stream/files.h"
#include "lockstep/data/formats/stream/zlib_stream.h"

namespace lockstep::data {

RecordWriter::RecordWriter(std::string path, RecordWriterOptions options) {
  LOCKSTEP_CHECK_VALUE(options.compression != Compression::Auto,
                       "[tfrecord_writer] must be none, gzip or zlib: compression=", options.compression);
  file_ = std::make_unique<detail::OutputFile>(std::move(path), "tfrecord_writer");
  if (options.compression == Compression::None) return;
  deflated_ =
      std::make_unique<detail::DeflatedStream>(options.compression, options.compression_level,
                                               [file = file_.get()](std::string_view bytes) { file->write(bytes); });
}

RecordWriter::~RecordWriter() {
  try {
    if (file_ != nullptr) close();
  } catch (const c10::Error&) {  // nobody is left to be told; close() is for those who ask
  }
}

RecordWriter::RecordWriter(RecordWriter&&) noexcept = default;
RecordWriter& RecordWriter::operator=(RecordWriter&& other) noexcept {
  std::swap(file_, other.file_);  // `other` closes what was written here
  std::swap(deflated_, other.deflated_);
  std::swap(records_written_, other.records_written_);
  return *this;
}

void RecordWriter::write(std::string_view record) {
  LOCKSTEP_CHECK_VALUE(file_->is_open(), "[tfrecord_writer] the file was closed: file=\"", file_->path(), "\"");
  const uint64_t length = record.size();
  char header[sizeof(uint64_t) + sizeof(uint32_t)];
  std::memcpy(header, &length, sizeof(length));
  const uint32_t length_checksum = masked_crc32c({header, sizeof(length)});
  std::memcpy(header + sizeof(length), &length_checksum, sizeof(length_checksum));
  char footer[sizeof(uint32_t)];
  const uint32_t checksum = masked_crc32c(record);
  std::memcpy(footer, &checksum, sizeof(checksum));
  put({header, sizeof(header)});
  put(record);
  put({footer, sizeof(footer)});
  ++records_written_;
}

void RecordWriter::flush() {
  if (!file_->is_open()) return;
  if (deflated_ != nullptr) deflated_->flush();
  file_->flush();
}

void RecordWriter::close() {
  if (!file_->is_open()) return;
  if (deflated_ != nullptr) deflated_->finish();
  file_->close();
}

void RecordWriter::put(std::string_view bytes) {
  if (deflated_ != nullptr) {
    deflated_->write(bytes);
  } else {
    file_->write(bytes);
  }
}

}  // namespace lockstep::data
