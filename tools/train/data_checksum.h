#pragma once

#include <string>
#include <vector>

/// What tells whether data have changed since a run began.
namespace lockstep::tools {

/// Returns the size and the CRC-32C of files: of their contents, of folders of images of the names and sizes of the
/// images. The folders and names that `paths` have do not count.
std::string data_checksum(const std::vector<std::string>& paths);

/// Returns the paths from the root.
std::vector<std::string> absolute_paths(const std::vector<std::string>& paths);

}  // namespace lockstep::tools
