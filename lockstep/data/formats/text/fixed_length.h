#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/compression.h"
#include "lockstep/data/formats/stream/file_access.h"

/// Reads files of records that are all of one length, such as CIFAR's.
///
///     data::FixedLengthReader reader("data_batch_1.bin", {.record_bytes = 3073});
namespace lockstep::data {

namespace detail {
class ByteStream;
class StoredFile;
}  // namespace detail

struct FixedLengthOptions {
  /// The length of each record, at least 1.
  int64_t record_bytes = 0;
  /// The number of bytes to skip at the beginning and at the end of the file.
  int64_t header_bytes = 0;
  int64_t footer_bytes = 0;
  /// Auto detects gzip.
  Compression compression = Compression::None;
  /// How an opened file is read.
  FileAccess access = FileAccess::Auto;
};

/// The records of one file in order. One thread at a time may use the reader; any thread may use the records.
///
/// Records of an uncompressed file that is mapped point into the mapping; other records own their memory. A file that
/// does not consist of header, whole records and footer throws DataError that names the sizes: an uncompressed one when
/// it is opened, a compressed one at its end or where its data are damaged; it ends there.
class LOCKSTEP_API FixedLengthReader {
 public:
  FixedLengthReader(std::string path, FixedLengthOptions options);
  /// Reads the contents of a file from memory; messages name it `name`.
  FixedLengthReader(Bytes contents, std::string name, FixedLengthOptions options);
  ~FixedLengthReader();
  FixedLengthReader(FixedLengthReader&&) noexcept;
  FixedLengthReader& operator=(FixedLengthReader&&) noexcept;

  /// Reads the next record. At the end it returns false and does not change `record`.
  bool next(Bytes& record);
  /// Skips up to `count` records and returns how many. Damage does not throw and counts as one, as in `next`.
  int64_t skip(int64_t count);

  /// How many records were read or skipped: the number of the next one.
  int64_t records_read() const { return records_read_; }

 private:
  FixedLengthReader(detail::StoredFile file, std::string name, FixedLengthOptions options);
  bool fill(size_t size);
  bool next_of_blocks(Bytes& record);
  void check_size(uint64_t size) const;

  std::string path_;
  FixedLengthOptions options_;
  std::unique_ptr<detail::ByteStream> stream_;
  std::string pending_;  // of a compressed file: a record, and what may be the footer
  int64_t records_read_ = 0;
  bool ended_ = false;  // of a compressed file
};

}  // namespace lockstep::data
