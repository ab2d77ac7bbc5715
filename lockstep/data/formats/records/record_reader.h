#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/compression.h"
#include "lockstep/data/formats/stream/file_access.h"

/// Reads TensorFlow's record files: each record is its length (8 bytes), the length's checksum (4), the payload, the
/// payload's checksum (4).
///
///     data::RecordReader reader("train.tfrecord");
///     for (data::Bytes record; reader.next(record);) std::cout << record.size() << '\n';
namespace lockstep::data {

namespace detail {
class ByteStream;
class StoredFile;
}  // namespace detail

struct RecordReaderOptions {
  /// Auto: a file whose first length has the right checksum is uncompressed, otherwise gzip and zlib are detected.
  Compression compression = Compression::Auto;
  /// How an opened file is read.
  FileAccess access = FileAccess::Auto;
};

/// The records of one file, in order. One thread at a time may use the reader; any thread may use the records.
///
/// Records of an uncompressed file that is mapped point into the mapping: nothing is copied, and each record shares
/// ownership of the mapping. Each record of a compressed file, and of a file that is read (FileAccess), owns its
/// memory.
///
/// Every record is checked as TensorFlow does. Damage throws DataError that names the file, the offset of the damaged
/// record (for a compressed file: in the uncompressed data) and its number, from 0 on. A file that ends inside a record
/// is damaged, also where TensorFlow reports the end (inside a length and its checksum).
///
/// Each damage is thrown once and counts as one record. The next call returns the record behind it where the damaged
/// record's length is sound; otherwise nobody knows where the next one begins, and the file ends.
class LOCKSTEP_API RecordReader {
 public:
  /// Opens `path`. Throws DataError where there is no such file.
  explicit RecordReader(std::string path, RecordReaderOptions options = {});
  /// Reads the contents of a file from memory; messages name it `name`.
  RecordReader(Bytes contents, std::string name, RecordReaderOptions options = {});
  ~RecordReader();
  RecordReader(RecordReader&&) noexcept;
  RecordReader& operator=(RecordReader&&) noexcept;

  /// Reads the next record. At the end it returns false and does not change `record`.
  bool next(Bytes& record);

  /// Skips up to `count` records and returns how many. Checks their lengths but not their payloads, which are not read
  /// from an uncompressed file. Does not throw for damage: it counts as one record, as in `next`.
  int64_t skip(int64_t count);

  /// How many records were read, skipped or found to be damaged: the number of the next one.
  int64_t records_read() const { return records_read_; }

  /// The offset of the next record; for a compressed file, in the uncompressed data.
  uint64_t offset() const { return offset_; }

  /// The compression of the file; never Auto.
  Compression compression() const { return compression_; }

 private:
  RecordReader(detail::StoredFile file, std::string name, RecordReaderOptions options);
  bool next_in_memory(std::string_view& payload, uint32_t& checksum);
  bool next_of_blocks(Bytes& record);
  bool skip_one();
  bool read_header(uint64_t& length);
  void finish_record(uint64_t length);
  void finish_record(std::string_view payload, uint32_t checksum);
  std::string damage(std::string_view rule, std::string_view reason = {}) const;
  void check_pages();
  [[noreturn]] void end_with(std::string_view rule, std::string_view reason = {});

  std::string path_;
  Compression compression_ = Compression::None;
  std::unique_ptr<detail::ByteStream> stream_;
  uint64_t offset_ = 0;
  int64_t records_read_ = 0;
  bool ended_ = false;  // at damage behind which nothing can be read
};

}  // namespace lockstep::data
