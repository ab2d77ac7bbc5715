#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/compression.h"

/// Reads TensorFlow's record files: each record is its length (8 bytes), the length's checksum (4), the payload, the
/// payload's checksum (4).
///
///     data::RecordReader reader("train.tfrecord");
///     for (data::Bytes record; reader.next(record);) std::cout << record.size() << '\n';
namespace lockstep::data {

namespace detail {
class InflatedStream;
}

struct RecordReaderOptions {
  /// Auto takes a file whose first length has the right checksum as it is, and looks for gzip and zlib otherwise.
  Compression compression = Compression::Auto;
};

/// The records of one file, in order. To be used by one thread at a time; the records may go to any.
///
/// A file that is not compressed is mapped, and its records are pieces of the mapping: nothing is copied, and the
/// mapping lives as long as one of them. Records of a compressed file have memory of their own each.
///
/// Every record is checked as TensorFlow does. Whatever is wrong throws DataError that names the file, the offset where
/// the damaged record begins (of a compressed file: in the uncompressed data) and its number from 0 on. A file that
/// ends inside a record is damaged, also where TensorFlow ends quietly (inside of a length and its checksum). After an
/// error every further call throws the same.
class LOCKSTEP_API RecordReader {
 public:
  /// Opens `path`. Throws DataError where there is no such file.
  explicit RecordReader(std::string path, RecordReaderOptions options = {});
  /// Reads a file's contents that are in memory already; messages call it `name`.
  RecordReader(Bytes contents, std::string name, RecordReaderOptions options = {});
  ~RecordReader();
  RecordReader(RecordReader&&) noexcept;
  RecordReader& operator=(RecordReader&&) noexcept;

  /// Takes the next record. Returns false, and leaves `record` alone, at the end.
  bool next(Bytes& record);

  /// Passes over `count` records, or as many as there are; returns how many. Checks their lengths, not their payloads,
  /// which of a file that is not compressed are not even read.
  int64_t skip(int64_t count);

  /// How many records were taken or passed over: the number of the next one.
  int64_t records_read() const { return records_read_; }

  /// Where the next record begins; of a compressed file, in the uncompressed data.
  uint64_t offset() const { return offset_; }

  /// What the file is read as; never Auto.
  Compression compression() const { return compression_; }

 private:
  bool next_mapped(std::string_view& payload, uint32_t& checksum);
  bool next_inflated(Bytes& record);
  bool skip_inflated();
  bool read_inflated_header(uint64_t& length);
  void finish_record(uint64_t length);
  void check_payload(std::string_view payload, uint32_t checksum);
  [[noreturn]] void refuse(std::string_view rule, std::string_view reason = {});

  Bytes file_;
  std::string path_;
  Compression compression_;
  std::unique_ptr<detail::InflatedStream> stream_;  // of a compressed file
  uint64_t offset_ = 0;
  int64_t records_read_ = 0;
  std::string failure_;
};

}  // namespace lockstep::data
