#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::tools {

struct WriteOptions {
  std::string output;
  std::vector<std::string> inputs;
  /// "none", "gzip" or "zlib".
  std::string compression = "none";
  int num_shards = 1;
  bool csv_header = false;
};

struct WrittenFile {
  std::string path;
  int64_t records = 0;
  uint64_t bytes = 0;
};

/// Writes record files from others; `--help` says what becomes of which. Throws DataError for what cannot be read or
/// written.
std::vector<WrittenFile> write_records(const WriteOptions& options);

}  // namespace lockstep::tools
