#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/data/formats/compression.h"

/// Writes TensorFlow's record files.
///
///     data::RecordWriter writer("train.tfrecord.gz", {.compression = data::Compression::Gzip});
///     for (const auto& example : examples) writer.write(example.serialize());
///     writer.close();
namespace lockstep::data {

namespace detail {
class GrowingFile;
class DeflatedStream;
}  // namespace detail

struct RecordWriterOptions {
  /// Not Auto.
  Compression compression = Compression::None;
  /// 0 (fast) to 9 (small); -1 is zlib's own choice.
  int compression_level = -1;
};

/// One file that is written record by record. To be used by one thread at a time. Errors are DataError that name the
/// file and the system's reason.
class LOCKSTEP_API RecordWriter {
 public:
  /// Creates the file, or empties the one that is there.
  explicit RecordWriter(std::string path, RecordWriterOptions options = {});
  /// Closes as `close` does, but keeps quiet about failures: call `close` to know.
  ~RecordWriter();
  RecordWriter(RecordWriter&&) noexcept;
  RecordWriter& operator=(RecordWriter&&) noexcept;

  void write(std::string_view record);

  /// Hands all records to the system: a reader of the growing file finds them there.
  void flush();

  /// Ends the file. Does nothing when called again; nothing may be written afterwards.
  void close();

  int64_t records_written() const { return records_written_; }

 private:
  void put(std::string_view bytes);

  std::unique_ptr<detail::GrowingFile> file_;
  std::unique_ptr<detail::DeflatedStream> deflated_;  // none where nothing is compressed
  int64_t records_written_ = 0;
};

}  // namespace lockstep::data
