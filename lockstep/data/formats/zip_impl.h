#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/bytes.h"
#include "lockstep/data/formats/npy_impl.h"

/// Zip archives, as far as `.npz` files use them: one disk, no encryption, members stored or deflated; zip64.
namespace lockstep::data::detail {

struct ZipMember {
  std::string name;
  /// 0 stored, 8 deflated.
  uint16_t method = 0;
  uint16_t flags = 0;
  uint32_t crc = 0;
  uint64_t compressed_size = 0;
  uint64_t size = 0;
  /// Where its local header is.
  uint64_t offset = 0;
};

/// Reads the list of members at the end of an archive. Throws DataError.
std::vector<ZipMember> zip_directory(std::string_view archive, const Origin& origin);

/// Returns the bytes of a member as they lie in the archive, compressed or not. Throws DataError, also for encrypted
/// ones.
Bytes zip_contents(const Bytes& archive, const ZipMember& member, const Origin& origin);

/// Returns the CRC-32 that zip archives have, of `bytes` after those whose CRC is `before`.
uint32_t zip_crc(std::string_view bytes, uint32_t before = 0);

/// Uncompresses raw deflate data into `size` bytes at `out` and stops when they are full. Returns how many it made, and
/// puts into `problem` why there are fewer, if there are. Without zlib it throws c10::NotImplementedError.
size_t zip_inflate(std::string_view compressed, char* out, size_t size, std::string& problem);

/// Returns `pieces`, put together, as raw deflate data. Without zlib it throws c10::NotImplementedError.
std::string zip_deflate(std::initializer_list<std::string_view> pieces);

}  // namespace lockstep::data::detail
