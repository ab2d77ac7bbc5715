#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/compression.h"
#include "lockstep/data/formats/stream/file_access.h"

/// Reads the lines of a text.
///
///     data::LineReader reader("corpus.txt");
///     for (data::Bytes line; reader.next(line);) std::cout << line.view() << '\n';
namespace lockstep::data {

namespace detail {
class ByteStream;
class StoredFile;
}  // namespace detail

struct LineReaderOptions {
  /// Auto detects gzip; zlib must be set explicitly.
  Compression compression = Compression::Auto;
  /// How an opened file is read.
  FileAccess access = FileAccess::Auto;
};

/// The lines of one file in order, without line ends: LF or CR LF, optional after the last line. One thread at a time
/// may use the reader; any thread may use the lines.
///
/// Lines of an uncompressed file that is mapped point into the mapping; other lines own their memory. Damaged
/// compressed data, and a file that cannot be read, throw DataError that names the file, the offset of the line in the
/// uncompressed data, and its number, from 0 on; the file ends there.
class LOCKSTEP_API LineReader {
 public:
  /// Opens `path`. Throws DataError where there is no such file.
  explicit LineReader(std::string path, LineReaderOptions options = {});
  /// Reads the contents of a file from memory; messages name it `name`.
  LineReader(Bytes contents, std::string name, LineReaderOptions options = {});
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  /// Reads the next line. At the end it returns false and does not change `line`.
  bool next(Bytes& line);
  /// Skips up to `count` lines and returns how many. Damage does not throw and counts as one, as in `next`.
  int64_t skip(int64_t count);

  /// How many lines were read or skipped: the number of the next one.
  int64_t lines_read() const { return lines_read_; }
  /// The offset of the next line; for a compressed file, in the uncompressed data.
  uint64_t offset() const;

 private:
  LineReader(detail::StoredFile file, std::string name, LineReaderOptions options);
  bool next_of_blocks(Bytes& line);
  void check_pages();

  std::string path_;
  std::unique_ptr<detail::ByteStream> stream_;
  int64_t lines_read_ = 0;
  bool ended_ = false;  // at damage
};

}  // namespace lockstep::data
