#pragma once

#include <string>
#include <vector>

namespace lockstep::tools {

/// ValueError where a file cannot be written without losing something; `operation` is "predict" or "export".
///   - its folder must exist;
///   - it is none of `sources`, and not inside of one that is a folder;
///   - it replaces no file of a run folder, and is no model of one;
///   - an existing file is replaced only with `force`.
void check_output(const std::string& output, const char* operation, const std::vector<std::string>& sources,
                  bool force);

/// A file that is written under another name, in a folder of its own beside the output, and renamed when it is whole.
class OutputFile {
 public:
  OutputFile(std::string output, const char* operation, bool force);
  /// Removes what was not kept.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Where to write it.
  const std::string& path() const { return path_; }
  /// Gives it its name. ValueError where a file has got this name meanwhile, unless it may be replaced.
  void keep();

 private:
  std::string output_;
  const char* operation_;
  bool force_;
  std::string folder_;
  std::string path_;
};

}  // namespace lockstep::tools
