#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep::trace::detail {

/// A file of Chrome's trace events, as an array with one event a line. It can be read at any time, also after the
/// process was killed: only the closing bracket may be missing.
class LOCKSTEP_API TraceFile {
 public:
  /// Takes a new, empty file that is open for writing, and closes it at its end.
  TraceFile(std::string path, int descriptor);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  const std::string& path() const { return path_; }

  /// Adds an event: a JSON object in one line.
  void add(std::string_view event);
  /// Gives all events to the system. False where it does not take them.
  bool flush();
  /// Ends the array.
  bool close();

 private:
  std::string path_;
  int descriptor_ = -1;
  /// The file ends here, and `page_` will be written.
  uint64_t offset_ = 0;
  std::string page_;
  bool is_first_ = true;
  bool has_failed_ = false;
};

}  // namespace lockstep::trace::detail
