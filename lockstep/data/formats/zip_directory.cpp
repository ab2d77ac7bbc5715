#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/zip_impl.h"

namespace lockstep::data::detail {
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
constexpr uint16_t kEncrypted = 1;
// A field of four bytes that says: see the zip64 field.
constexpr uint64_t kSeeZip64 = 0xffffffff;

// Little endian numbers at places that were found to be inside.
template <class T>
T number_at(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;)
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(bytes[offset + i]));
  return value;
}

template <>
uint8_t number_at<uint8_t>(std::string_view bytes, size_t offset) = delete;

struct Directory {
  uint64_t count;
  std::string_view entries;
};

[[noreturn]] void fail(const Origin& origin, std::string_view rule, uint64_t offset) {
  throw DataError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                  c10::str("[", origin.operation, "] ", rule, ": ", origin.where, ", offset=", offset));
}

// The end record is the last thing in the file, but for a comment of up to 65535 bytes.
size_t find_directory_end(std::string_view archive, const Origin& origin) {
  if (archive.size() < kDirectoryEndSize) fail(origin, "a zip archive must not be cut off", archive.size());
  for (size_t comment = 0; comment <= 0xffff && comment + kDirectoryEndSize <= archive.size(); ++comment) {
    const size_t offset = archive.size() - kDirectoryEndSize - comment;
    if (archive.substr(offset, 4) == kDirectoryEnd && number_at<uint16_t>(archive, offset + 20) == comment)
      return offset;
  }
  fail(origin, "a zip archive must end with its list of members (the file may be cut off)", archive.size());
}

Directory find_directory(std::string_view archive, const Origin& origin) {
  const size_t end = find_directory_end(archive, origin);
  uint64_t count = number_at<uint16_t>(archive, end + 10);
  uint64_t size = number_at<uint32_t>(archive, end + 12);
  uint64_t offset = number_at<uint32_t>(archive, end + 16);
  if (end >= kLocator64Size && archive.substr(end - kLocator64Size, 4) == kLocator64) {
    const auto end64 = number_at<uint64_t>(archive, end - kLocator64Size + 8);
    if (end64 > archive.size() || archive.size() - end64 < kDirectoryEnd64Size ||
        archive.substr(end64, 4) != kDirectoryEnd64) {
      fail(origin, "the zip64 record is missing", end64);
    }
    count = number_at<uint64_t>(archive, end64 + 32);
    size = number_at<uint64_t>(archive, end64 + 40);
    offset = number_at<uint64_t>(archive, end64 + 48);
  }
  if (offset > end || end - offset < size) fail(origin, "the list of members must lie in the file", offset);
  return {count, archive.substr(offset, size)};
}

// Puts the eight-byte numbers of the zip64 field into those that did not fit into four.
void apply_zip64(std::string_view extra, ZipMember& member, const Origin& origin) {
  while (extra.size() >= 4) {
    const auto id = number_at<uint16_t>(extra, 0);
    const size_t size = std::min<size_t>(number_at<uint16_t>(extra, 2), extra.size() - 4);
    std::string_view field = extra.substr(4, size);
    extra.remove_prefix(4 + size);
    if (id != 1) continue;
    for (uint64_t* value : {&member.size, &member.compressed_size, &member.offset}) {
      if (*value != kSeeZip64) continue;
      if (field.size() < 8) fail(origin, "the zip64 field is too short", member.offset);
      *value = number_at<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
    return;
  }
}

}  // namespace

std::vector<ZipMember> zip_directory(std::string_view archive, const Origin& origin) {
  const Directory directory = find_directory(archive, origin);
  std::string_view rest = directory.entries;
  std::vector<ZipMember> members;
  for (uint64_t i = 0; i < directory.count; ++i) {
    const auto offset = static_cast<uint64_t>(rest.data() - archive.data());
    if (rest.size() < kEntrySize || !rest.starts_with(kDirectoryEntry))
      fail(origin, "a member must be listed here", offset);
    ZipMember member;
    member.flags = number_at<uint16_t>(rest, 8);
    member.method = number_at<uint16_t>(rest, 10);
    member.crc = number_at<uint32_t>(rest, 16);
    member.compressed_size = number_at<uint32_t>(rest, 20);
    member.size = number_at<uint32_t>(rest, 24);
    member.offset = number_at<uint32_t>(rest, 42);
    const size_t name_size = number_at<uint16_t>(rest, 28);
    const size_t extra_size = number_at<uint16_t>(rest, 30);
    const size_t whole = kEntrySize + name_size + extra_size + number_at<uint16_t>(rest, 32);
    if (rest.size() < whole) fail(origin, "the list of members is cut off", offset);
    member.name = rest.substr(kEntrySize, name_size);
    apply_zip64(rest.substr(kEntrySize + name_size, extra_size), member, origin);
    rest.remove_prefix(whole);
    members.push_back(std::move(member));
  }
  return members;
}

Bytes zip_contents(const Bytes& archive, const ZipMember& member, const Origin& origin) {
  if ((member.flags & kEncrypted) != 0) fail(origin, "encrypted members are not read", member.offset);
  const std::string_view view = archive;
  if (member.offset > view.size() || view.size() - member.offset < kLocalHeaderSize ||
      view.substr(member.offset, 4) != kLocalHeader) {
    fail(origin, "the member must start with its header", member.offset);
  }
  // Name and extra field are repeated here; the extra field may be another one than in the list.
  const uint64_t start = member.offset + kLocalHeaderSize + number_at<uint16_t>(view, member.offset + 26) +
                         number_at<uint16_t>(view, member.offset + 28);
  if (start > view.size()) fail(origin, "the header of the member is cut off", member.offset);
  const uint64_t found = view.size() - start;
  LOCKSTEP_CHECK_DATA(found >= member.compressed_size, "[", origin.operation, "] the member is cut off: ", origin.where,
                      ", needed bytes=", member.compressed_size, ", found bytes=", found);
  return archive.slice(start, member.compressed_size);
}

}  // namespace lockstep::data::detail
