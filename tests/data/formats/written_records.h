#pragma once

#include <string>
#include <vector>

#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/data/formats/stream/file_access.h"

namespace lockstep::data::tests {

constexpr FileAccess kBoth[] = {FileAccess::Map, FileAccess::Read};

/// Writes records of these sizes, each of another letter, and returns the file.
inline std::string write_records(const std::string& file, const std::vector<size_t>& sizes,
                                 Compression compression = Compression::None) {
  RecordWriter writer(file, {.compression = compression});
  char letter = 'a';
  for (const size_t size : sizes) writer.write(std::string(size, letter++));
  writer.close();
  return file;
}

}  // namespace lockstep::data::tests
