#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "lockstep/api.h"

/// Internal: the directory of a zip archive. Members are read where they are stored without compression, as
/// `torch.save` does.
namespace lockstep::detail {

struct ZipMember {
  /// Of the first byte in the archive.
  int64_t offset = 0;
  int64_t num_bytes = 0;
  /// Whether it is neither compressed nor encrypted.
  bool plain = true;
};

/// Fills the memory from a position of the archive on.
using ReadBytes = std::function<void(int64_t offset, std::span<char> target)>;

/// Reads the directory of an archive with `num_bytes`. DataError with `place` where it is damaged, and for compressed
/// or encrypted members.
LOCKSTEP_API std::map<std::string, ZipMember> read_zip_directory(const ReadBytes& read, int64_t num_bytes,
                                                                 const std::string& place);

}  // namespace lockstep::detail
