#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include "lockstep/data/bytes.h"

/// Files as the formats read and write them.
namespace lockstep::data::detail {

/// Maps a file so that its memory may be written: pages that are written become this process's own, the file stays as
/// it is. No order of reading is assumed. Throws DataError that names `operation` and the file.
c10::intrusive_ptr<Buffer> map_private(const std::string& path, std::string_view operation);

/// A file that appears under its name only when it is complete: it is written beside it, as `<path>.<number>.partial`.
/// Every function throws DataError that names the operation and the file. Not to be shared between threads.
class OutputFile {
 public:
  OutputFile(std::string path, std::string operation);
  /// Removes what was written, unless it was completed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  /// Bytes written so far.
  uint64_t position() const { return position_; }
  /// Writes what is left and gives the file its name. Nothing may be written afterwards.
  void complete();
  bool completed() const { return descriptor_ < 0; }

 private:
  void write_out(std::string_view bytes);
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_;
  std::string partial_path_;
  std::string operation_;
  std::string pending_;
  uint64_t position_ = 0;
  int descriptor_ = -1;
};

}  // namespace lockstep::data::detail
