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

/// Converts files to record files; `--help` lists the conversions. Throws DataError where reading or writing fails.
std::vector<WrittenFile> write_records(const WriteOptions& options);

}  // namespace lockstep::tools
