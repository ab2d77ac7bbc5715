#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "lockstep/api.h"

/// Internal: the members of a zip archive of `torch.save`, which stores them without compression.
namespace lockstep::detail {

struct StoredMember {
  /// Of the first byte in the archive.
  int64_t offset = 0;
  int64_t num_bytes = 0;
  /// Whether it is neither compressed nor encrypted.
  bool plain = true;
};

/// Fills the memory from a position of the archive on.
using ReadBytes = std::function<void(int64_t offset, std::span<char> target)>;

/// Returns the members of an archive with `num_bytes` by their names. DataError with `place` where it is damaged.
LOCKSTEP_API std::map<std::string, StoredMember> stored_members(const ReadBytes& read, int64_t num_bytes,
                                                                const std::string& place);

}  // namespace lockstep::detail
