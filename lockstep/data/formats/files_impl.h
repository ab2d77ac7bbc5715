#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/growing_file.h"

/// Files as the formats read and write them.
namespace lockstep::data::detail {

/// Maps a file so that its memory may be written: pages that are written become this process's own, the file stays as
/// it is. No order of reading is assumed. Throws DataError that names `operation` and the file.
c10::intrusive_ptr<Buffer> map_private(const std::string& path, std::string_view operation);

/// A file that appears under its name only when it is complete: it is written beside it, as `<path>.<number>.partial`.
/// Every function throws DataError that names the operation and the file. Not to be shared between threads.
class WholeFile {
 public:
  WholeFile(std::string path, std::string operation);
  /// Removes what was written, unless it was completed.
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(std::string_view bytes);
  /// Bytes written so far.
  uint64_t position() const { return position_; }
  /// Gives the file its name. Nothing may be written afterwards.
  void complete();
  bool completed() const { return !file_.is_open(); }

 private:
  std::string path_;
  std::string operation_;
  GrowingFile file_;
  uint64_t position_ = 0;
};

}  // namespace lockstep::data::detail
