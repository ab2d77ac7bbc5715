#include "lockstep/base/zip_directory.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kLocalHeader("PK\x03\x04", 4);
constexpr std::string_view kDirectoryEntry("PK\x01\x02", 4);
constexpr std::string_view kDirectoryEnd("PK\x05\x06", 4);
constexpr std::string_view kDirectoryEnd64("PK\x06\x06", 4);
constexpr std::string_view kLocator64("PK\x06\x07", 4);
constexpr size_t kDirectoryEndSize = 22;
constexpr size_t kLocator64Size = 20;
constexpr size_t kDirectoryEnd64Size = 56;
constexpr size_t kEntrySize = 46;
constexpr size_t kLocalHeaderSize = 30;
constexpr size_t kLargestComment = 0xffff;
/// Of a list: a million members.
constexpr uint64_t kLargestDirectory = uint64_t{256} << 20;
/// The value of a four-byte field whose number is in the zip64 field.
constexpr uint64_t kSeeZip64 = 0xffffffff;

[[noreturn]] void refuse(const ZipArchive& archive, std::string_view rule, uint64_t offset) {
  archive.refuse(rule, offset);
  LOCKSTEP_THROW(DataError, "[zip] ", rule, ": offset=", offset);
}

/// Reads a little-endian number; the caller has checked that it lies inside `bytes`.
template <class T>
T zip_number(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;)
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(bytes[offset + i]));
  return value;
}

/// The caller has checked that they lie in the archive.
std::string bytes_at(const ZipArchive& archive, uint64_t offset, uint64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  archive.read(offset, bytes);
  return bytes;
}

/// The record at the end of the archive, and where it is.
struct DirectoryEnd {
  std::string record;
  uint64_t offset = 0;
};

/// The end record is the last thing in the file, but for a comment of up to 65535 bytes.
DirectoryEnd find_directory_end(const ZipArchive& archive) {
  if (archive.size < kDirectoryEndSize) refuse(archive, "a zip archive must not be truncated", archive.size);
  const uint64_t count = std::min<uint64_t>(archive.size, kDirectoryEndSize + kLargestComment);
  const std::string tail = bytes_at(archive, archive.size - count, count);
  for (size_t comment = 0; comment + kDirectoryEndSize <= tail.size(); ++comment) {
    const size_t at = tail.size() - kDirectoryEndSize - comment;
    if (std::string_view(tail).substr(at, 4) == kDirectoryEnd && zip_number<uint16_t>(tail, at + 20) == comment) {
      return {tail.substr(at, kDirectoryEndSize), archive.size - count + at};
    }
  }
  refuse(archive, "a zip archive must end with its list of members (the file may be truncated)", archive.size);
}

struct Directory {
  uint64_t count = 0;
  uint64_t offset = 0;
  std::string entries;
};

Directory read_directory(const ZipArchive& archive) {
  const DirectoryEnd end = find_directory_end(archive);
  uint64_t count = zip_number<uint16_t>(end.record, 10);
  uint64_t size = zip_number<uint32_t>(end.record, 12);
  uint64_t offset = zip_number<uint32_t>(end.record, 16);
  const bool has_locator = end.offset >= kLocator64Size;
  const std::string locator = has_locator ? bytes_at(archive, end.offset - kLocator64Size, kLocator64Size) : "";
  if (locator.starts_with(kLocator64)) {
    const auto end64 = zip_number<uint64_t>(locator, 8);
    if (end64 > archive.size || archive.size - end64 < kDirectoryEnd64Size) {
      refuse(archive, "the zip64 record is missing", end64);
    }
    const std::string record = bytes_at(archive, end64, kDirectoryEnd64Size);
    if (!record.starts_with(kDirectoryEnd64)) refuse(archive, "the zip64 record is missing", end64);
    count = zip_number<uint64_t>(record, 32);
    size = zip_number<uint64_t>(record, 40);
    offset = zip_number<uint64_t>(record, 48);
  }
  if (offset > end.offset || end.offset - offset < size) {
    refuse(archive, "the list of members must lie in the file", offset);
  }
  if (size > kLargestDirectory) refuse(archive, "the list of members must not be that large", offset);
  return {count, offset, bytes_at(archive, offset, size)};
}

/// Puts the eight-byte numbers of the zip64 field into those that did not fit into four.
void apply_zip64(const ZipArchive& archive, std::string_view extra, ZipMember& member) {
  while (extra.size() >= 4) {
    const auto id = zip_number<uint16_t>(extra, 0);
    const size_t size = std::min<size_t>(zip_number<uint16_t>(extra, 2), extra.size() - 4);
    std::string_view field = extra.substr(4, size);
    extra.remove_prefix(4 + size);
    if (id != 1) continue;
    for (uint64_t* value : {&member.size, &member.compressed_size, &member.offset}) {
      if (*value != kSeeZip64) continue;
      if (field.size() < 8) refuse(archive, "the zip64 field is too short", member.offset);
      *value = zip_number<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
    return;
  }
}

}  // namespace

std::vector<ZipMember> read_zip_directory(const ZipArchive& archive) {
  const Directory directory = read_directory(archive);
  std::string_view rest = directory.entries;
  std::vector<ZipMember> members;
  for (uint64_t i = 0; i < directory.count; ++i) {
    const uint64_t offset = directory.offset + directory.entries.size() - rest.size();
    if (rest.size() < kEntrySize || !rest.starts_with(kDirectoryEntry)) {
      refuse(archive, "a member must be listed here", offset);
    }
    ZipMember member;
    member.flags = zip_number<uint16_t>(rest, 8);
    member.method = zip_number<uint16_t>(rest, 10);
    member.crc = zip_number<uint32_t>(rest, 16);
    member.compressed_size = zip_number<uint32_t>(rest, 20);
    member.size = zip_number<uint32_t>(rest, 24);
    member.offset = zip_number<uint32_t>(rest, 42);
    const size_t name_size = zip_number<uint16_t>(rest, 28);
    const size_t extra_size = zip_number<uint16_t>(rest, 30);
    const size_t whole = kEntrySize + name_size + extra_size + zip_number<uint16_t>(rest, 32);
    if (rest.size() < whole) refuse(archive, "the list of members is truncated", offset);
    member.name = rest.substr(kEntrySize, name_size);
    apply_zip64(archive, rest.substr(kEntrySize + name_size, extra_size), member);
    rest.remove_prefix(whole);
    members.push_back(std::move(member));
  }
  return members;
}

uint64_t zip_contents_offset(const ZipArchive& archive, const ZipMember& member) {
  if (member.offset > archive.size || archive.size - member.offset < kLocalHeaderSize) {
    refuse(archive, "the member must start with its header", member.offset);
  }
  const std::string header = bytes_at(archive, member.offset, kLocalHeaderSize);
  if (!header.starts_with(kLocalHeader)) refuse(archive, "the member must start with its header", member.offset);
  // Name and extra field are repeated here; the extra field may be another one than in the list.
  const uint64_t start =
      member.offset + kLocalHeaderSize + zip_number<uint16_t>(header, 26) + zip_number<uint16_t>(header, 28);
  if (start > archive.size) refuse(archive, "the header of the member is truncated", member.offset);
  return start;
}

}  // namespace lockstep
