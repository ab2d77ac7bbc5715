#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/data/formats/stream/compression.h"

/// Writes TensorFlow's record files.
///
///     data::RecordWriter writer("train.tfrecord.gz", {.compression = data::Compression::Gzip});
///     for (const auto& example : examples) writer.write(example.serialize());
///     writer.close();
namespace lockstep::data {

namespace detail {
class OutputFile;
class DeflatedStream;
}  // namespace detail

struct RecordWriterOptions {
  /// Not Auto.
  Compression compression = Compression::None;
  /// 0 (fast) to 9 (small); -1 is zlib's default.
  int compression_level = -1;
};

/// Writes one file record by record. One thread at a time may use it. Errors are DataError that names the file and the
/// system's reason.
class LOCKSTEP_API RecordWriter {
 public:
  /// Creates the file, or truncates an existing one.
  explicit RecordWriter(std::string path, RecordWriterOptions options = {});
  /// Closes the file and ignores errors; call `close` to see them.
  ~RecordWriter();
  RecordWriter(RecordWriter&&) noexcept;
  RecordWriter& operator=(RecordWriter&&) noexcept;

  void write(std::string_view record);

  /// Writes all records to the file: readers of the growing file see them.
  void flush();

  /// Completes the file. Later calls do nothing; nothing may be written afterwards.
  void close();

  int64_t records_written() const { return records_written_; }

 private:
  void put(std::string_view bytes);

  std::unique_ptr<detail::OutputFile> file_;
  std::unique_ptr<detail::DeflatedStream> deflated_;  // null without compression
  int64_t records_written_ = 0;
};

}  // namespace lockstep::data
