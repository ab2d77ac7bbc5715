#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/state.h"

/// Internal: safetensors files: 8 bytes with the length of the header, the header as JSON, the data.
namespace lockstep::detail {

struct SafetensorsEntry {
  std::string name;
  /// "F32"
  std::string code;
  std::vector<int64_t> sizes;
  /// Bytes, counted from the end of the header.
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  /// In the order of their bytes.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  /// Where the data begin in the file.
  int64_t data_offset = 0;
};

/// Reads the header from the first bytes of a file with `num_bytes`; `start` has at least the header. DataError where
/// it is wrong: more than 100 MB, no JSON, a name twice, an unknown dtype, a shape that does not match its bytes, bytes
/// that belong to no or to two tensors.
LOCKSTEP_API SafetensorsHeader parse_safetensors(std::string_view start, int64_t num_bytes, const std::string& place);
LOCKSTEP_API SafetensorsHeader read_safetensors_header(const BlockFile& file);

/// Its tensors, which are read when they are used, and the values that `save_safetensors` wrote. DataError also for a
/// dtype that this LibTorch does not have.
State open_safetensors(std::shared_ptr<const BlockFile> file);

/// Writes the tensors of a state to a file, which replaces an older one when it is complete; numbers and texts go to
/// its metadata, beside `metadata`.
LOCKSTEP_API void write_safetensors(const State& state, const std::string& path,
                                    const std::map<std::string, std::string>& metadata);

/// Length and JSON of a header, padded with spaces to a multiple of `alignment` bytes.
LOCKSTEP_API std::string safetensors_start(const SafetensorsHeader& header, size_t alignment);

/// The key of metadata that has numbers and texts of a state.
inline constexpr const char* kValuesKey = "lockstep.values";

}  // namespace lockstep::detail
