#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/zip_directory.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/numpy/npy_impl.h"

/// The part of the zip format that `.npz` files use: one disk, no encryption, members stored or deflated; zip64.
namespace lockstep::data::detail {

class AtomicFile;

/// The flag of members whose names are UTF-8.
inline constexpr uint16_t kZipUtf8Names = 0x0800;

using lockstep::ZipMember;

/// Reads the list of members at the end of an archive. Throws DataError.
std::vector<ZipMember> zip_directory(std::string_view archive, const Origin& origin);

/// Returns the bytes of a member in the archive, compressed or not. Throws DataError, also for an encrypted one.
Bytes zip_contents(const Bytes& archive, const ZipMember& member, const Origin& origin);

/// Writes the header of a member, padded such that its contents start at a multiple of 64.
void write_zip_header(AtomicFile& file, const ZipMember& member);

/// Writes the list of members at the end of an archive.
void write_zip_directory(AtomicFile& file, const std::vector<ZipMember>& members);

/// Returns the CRC-32 of zip archives of `bytes`, continued from the CRC `before`.
uint32_t zip_crc(std::string_view bytes, uint32_t before = 0);

/// Decompresses raw deflate data into `size` bytes at `out` and stops when they are full. Returns how many were
/// written; where there are fewer, `problem` gets the reason. Without zlib it throws c10::NotImplementedError.
size_t zip_inflate(std::string_view compressed, char* out, size_t size, std::string& problem);

/// Returns the concatenated `pieces` as raw deflate data. Without zlib it throws c10::NotImplementedError.
std::string zip_deflate(std::initializer_list<std::string_view> pieces);

}  // namespace lockstep::data::detail
