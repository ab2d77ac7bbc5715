#pragma once

#include <string>
#include <string_view>

/// A file that grows, and says what went wrong with it.
namespace lockstep::data::detail {

/// Collects small pieces, writes large ones. Throws DataError that names `operation`, the file and the system's reason.
class GrowingFile {
 public:
  /// Creates the file, or empties the one that is there.
  GrowingFile(std::string path, std::string operation);
  /// Closes as `close` does, but keeps quiet about failures.
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  void write(std::string_view bytes);
  /// Hands all bytes to the system: other processes see them.
  void flush();
  /// Flushes and closes. Does nothing when called again; nothing may be written afterwards.
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

}  // namespace lockstep::data::detail
