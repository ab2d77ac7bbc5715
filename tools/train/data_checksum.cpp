#include "tools/train/data_checksum.h"

#include <filesystem>

#include <c10/util/StringUtil.h>

#include "lockstep/base/crc32c.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/image_folder.h"

namespace lockstep::tools {

std::string data_checksum(const std::vector<std::string>& paths) {
  uint32_t checksum = 0;
  uint64_t bytes = 0;
  const auto add = [&](std::string_view text) { checksum = crc32c(text, checksum); };
  for (const std::string& path : paths) {
    if (std::filesystem::is_directory(path)) {
      for (const std::string& file : data::image_files(path)) {
        const uint64_t size = std::filesystem::file_size(file);
        add(c10::str(std::filesystem::path(file).lexically_relative(path).string(), '\n', size, '\n'));
        bytes += size;
      }
      continue;
    }
    const auto file = data::Buffer::map_file(path, "train");
    add(c10::str(file->size(), '\n'));
    add({file->data(), file->size()});
    bytes += file->size();
  }
  return c10::str("bytes=", bytes, " crc32c=", checksum);
}

std::vector<std::string> absolute_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> result;
  for (const std::string& path : paths) {
    result.push_back(std::filesystem::absolute(path).lexically_normal().string());
  }
  return result;
}

}  // namespace lockstep::tools
