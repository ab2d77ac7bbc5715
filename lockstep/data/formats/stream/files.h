#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include "lockstep/data/element/bytes.h"

/// Mapped files and output files of the formats.
namespace lockstep::data::detail {

/// Maps a file for reading. Throws DataError that names `operation` and the file.
Bytes map_whole(const std::string& path, std::string_view operation);

/// Maps a file, or reads it as a whole where FileAccess::Auto says so. Throws DataError that names `operation` and the
/// file.
Bytes map_or_read(const std::string& path, std::string_view operation);

/// Maps a file copy-on-write: writes change the memory of this process, never the file. No order of reading is assumed.
/// Throws DataError that names `operation` and the file.
c10::intrusive_ptr<Buffer> map_private(const std::string& path, std::string_view operation);

/// A file that is written with a buffer. Throws DataError that names `operation`, the file and the system's reason.
class OutputFile {
 public:
  /// Creates the file, or truncates an existing one.
  OutputFile(std::string path, std::string operation);
  /// Closes the file and ignores errors.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  /// Writes all buffered bytes: other processes see them.
  void flush();
  /// Flushes and closes. Later calls do nothing; nothing may be written afterwards.
  void close();

  bool is_open() const { return descriptor_ >= 0; }
  const std::string& path() const { return path_; }

 private:
  void write_out(std::string_view bytes);

  std::string path_;
  std::string operation_;
  int descriptor_;
  std::string pending_;
};

/// A file that gets its name when it is complete: until then it is `<path>.<number>.partial`. Every function throws
/// DataError that names the operation and the file. For one thread.
class AtomicFile {
 public:
  AtomicFile(std::string path, std::string operation);
  /// Removes the file unless it is complete.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  /// Bytes written so far.
  uint64_t position() const { return position_; }
  /// Renames the file to its path. Nothing may be written afterwards.
  void complete();
  bool completed() const { return !file_.is_open(); }

 private:
  std::string path_;
  std::string operation_;
  OutputFile file_;
  uint64_t position_ = 0;
};

}  // namespace lockstep::data::detail
