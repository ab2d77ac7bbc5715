#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"

/// Internal: what `.npz` files and files of `torch.save` need of the zip format: one disk, zip64.
namespace lockstep {

struct ZipMember {
  std::string name;
  /// 0 stored, 8 deflated.
  uint16_t method = 0;
  uint16_t flags = 0;
  uint32_t crc = 0;
  uint64_t compressed_size = 0;
  uint64_t size = 0;
  /// The offset of its local header.
  uint64_t offset = 0;

  bool is_encrypted() const { return (flags & 1U) != 0; }
};

/// An archive, wherever its bytes are.
struct ZipArchive {
  uint64_t size = 0;
  /// Fills the memory from a position of the archive on.
  std::function<void(uint64_t offset, std::span<char> target)> read;
  /// Throws DataError: the rule that is broken, and where.
  std::function<void(std::string_view rule, uint64_t offset)> refuse;
};

/// Reads the list of members at the end of an archive.
LOCKSTEP_API std::vector<ZipMember> read_zip_directory(const ZipArchive& archive);

/// Returns where the contents of a member begin. They may end behind the archive.
LOCKSTEP_API uint64_t zip_contents_offset(const ZipArchive& archive, const ZipMember& member);

}  // namespace lockstep
