#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/compression.h"

/// Reads the lines of a text.
///
///     data::LineReader reader("corpus.txt");
///     for (data::Bytes line; reader.next(line);) std::cout << line.view() << '\n';
namespace lockstep::data {

namespace detail {
class ByteStream;
}

struct LineReaderOptions {
  /// Auto looks for gzip; zlib must be asked for.
  Compression compression = Compression::Auto;
};

/// The lines of one file in order, without what ends them: a line feed, also one after a carriage return. The last line
/// may do without. To be used by one thread at a time; the lines may go to any.
///
/// Lines of a file that is not compressed are pieces of its mapping; of one that is, they have memory of their own
/// each. Compressed data that are damaged throw DataError that names the file, the offset in the uncompressed data
/// where the line begins, and its number from 0 on.
class LOCKSTEP_API LineReader {
 public:
  /// Opens `path`. Throws DataError where there is no such file.
  explicit LineReader(std::string path, LineReaderOptions options = {});
  /// Reads a file's contents that are in memory already; messages call it `name`.
  LineReader(Bytes contents, std::string name, LineReaderOptions options = {});
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  /// Takes the next line. Returns false, and leaves `line` alone, at the end.
  bool next(Bytes& line);
  /// Passes over `count` lines, or as many as there are; returns how many.
  int64_t skip(int64_t count);

  /// How many lines were taken or passed over: the number of the next one.
  int64_t lines_read() const { return lines_read_; }
  /// Where the next line begins; of a compressed file, in the uncompressed data.
  uint64_t offset() const;

 private:
  bool next_of_blocks(Bytes& line);

  std::string path_;
  std::unique_ptr<detail::ByteStream> stream_;
  int64_t lines_read_ = 0;
};

}  // namespace lockstep::data
