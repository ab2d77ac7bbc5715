#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/compression.h"

/// Reads files of records that are all of one length, such as CIFAR's.
///
///     data::FixedLengthReader reader("data_batch_1.bin", {.record_bytes = 3073});
namespace lockstep::data {

namespace detail {
class ByteStream;
}

struct FixedLengthOptions {
  /// The length of each record, at least 1.
  int64_t record_bytes = 0;
  /// What to pass over at the file's beginning and at its end.
  int64_t header_bytes = 0;
  int64_t footer_bytes = 0;
  /// Auto looks for gzip.
  Compression compression = Compression::None;
};

/// The records of one file in order. To be used by one thread at a time; the records may go to any.
///
/// Records of a file that is not compressed are pieces of its mapping; of one that is, they have memory of their own
/// each. A file that is not header, whole records and footer throws DataError that names the sizes: one that is not
/// compressed at once, a compressed one when its end is reached.
class LOCKSTEP_API FixedLengthReader {
 public:
  FixedLengthReader(std::string path, FixedLengthOptions options);
  /// Reads a file's contents that are in memory already; messages call it `name`.
  FixedLengthReader(Bytes contents, std::string name, FixedLengthOptions options);
  ~FixedLengthReader();
  FixedLengthReader(FixedLengthReader&&) noexcept;
  FixedLengthReader& operator=(FixedLengthReader&&) noexcept;

  /// Takes the next record. Returns false, and leaves `record` alone, at the end.
  bool next(Bytes& record);
  /// Passes over `count` records, or as many as there are; returns how many.
  int64_t skip(int64_t count);

  /// How many records were taken or passed over: the number of the next one.
  int64_t records_read() const { return records_read_; }

 private:
  bool fill(size_t size);
  bool next_of_blocks(Bytes& record);
  void check_size(uint64_t size) const;

  std::string path_;
  FixedLengthOptions options_;
  std::unique_ptr<detail::ByteStream> stream_;
  std::string pending_;  // of a compressed file: a record, and what may be the footer
  int64_t records_read_ = 0;
};

}  // namespace lockstep::data
