#include "lockstep/data/formats/numpy/zip.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/stream/files.h"

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
// The value of a four-byte field whose number is in the zip64 field.
constexpr uint64_t kSeeZip64 = 0xffffffff;
constexpr size_t kMemberAlignment = 64;
constexpr uint32_t kSeeZip64Field = 0xffffffff;
constexpr uint16_t kVersion = 45;     // the first with zip64
constexpr uint16_t kFirstDay = 0x21;  // 1 January 1980: the same arrays make the same file
constexpr uint16_t kZip64Field = 1;
// Android's padding field, which readers ignore: it aligns the data.
constexpr uint16_t kAlignmentField = 0xd935;
constexpr size_t kZip64FieldSize = 20;
constexpr size_t kFieldHeaderSize = 4;

// Reads a little-endian number; the caller has checked that it lies inside `bytes`.
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
  LOCKSTEP_THROW(DataError, "[", origin.operation, "] ", rule, ": ", origin.where, ", offset=", offset);
}

// The end record is the last thing in the file, but for a comment of up to 65535 bytes.
size_t find_directory_end(std::string_view archive, const Origin& origin) {
  if (archive.size() < kDirectoryEndSize) fail(origin, "a zip archive must not be truncated", archive.size());
  for (size_t comment = 0; comment <= 0xffff && comment + kDirectoryEndSize <= archive.size(); ++comment) {
    const size_t offset = archive.size() - kDirectoryEndSize - comment;
    if (archive.substr(offset, 4) == kDirectoryEnd && number_at<uint16_t>(archive, offset + 20) == comment)
      return offset;
  }
  fail(origin, "a zip archive must end with its list of members (the file may be truncated)", archive.size());
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

// Appends little-endian numbers.
class LittleEndianBytes {
 public:
  template <class T>
  LittleEndianBytes& add(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
    return *this;
  }
  LittleEndianBytes& add_text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// What the local header and the list of members have in common.
void add_description(LittleEndianBytes& record, const ZipMember& member) {
  record.add(member.flags).add(member.method).add(uint16_t{0}).add(kFirstDay).add(member.crc);
}

void write_directory_entry(AtomicFile& file, const ZipMember& member) {
  const uint64_t largest = std::max({member.size, member.compressed_size, member.offset});
  const bool zip64 = largest >= kSeeZip64;
  const auto short_form = [&](uint64_t value) { return zip64 ? kSeeZip64Field : static_cast<uint32_t>(value); };
  LittleEndianBytes extra;
  if (zip64) {
    extra.add(kZip64Field).add(uint16_t{24}).add(member.size).add(member.compressed_size).add(member.offset);
  }
  LittleEndianBytes entry;
  constexpr uint16_t kMadeOnUnix = 3 << 8;
  constexpr uint32_t kPlainFile = 0100600U << 16;
  entry.add_text("PK\x01\x02").add(static_cast<uint16_t>(kMadeOnUnix | kVersion)).add(kVersion);
  add_description(entry, member);
  entry.add(short_form(member.compressed_size)).add(short_form(member.size));
  entry.add(static_cast<uint16_t>(member.name.size())).add(static_cast<uint16_t>(extra.bytes().size()));
  entry.add(uint16_t{0}).add(uint16_t{0}).add(uint16_t{0}).add(kPlainFile).add(short_form(member.offset));
  entry.add_text(member.name).add_text(extra.bytes());
  file.write(entry.bytes());
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
    if (rest.size() < whole) fail(origin, "the list of members is truncated", offset);
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
  if (start > view.size()) fail(origin, "the header of the member is truncated", member.offset);
  const uint64_t found = view.size() - start;
  LOCKSTEP_CHECK_DATA(found >= member.compressed_size, "[", origin.operation,
                      "] the member is truncated: ", origin.where, ", needed bytes=", member.compressed_size,
                      ", found bytes=", found);
  return archive.slice(start, member.compressed_size);
}

// Sizes stand in a zip64 field always: a header is written before it matters, and NumPy does so too.
void write_zip_header(AtomicFile& file, const ZipMember& member) {
  LittleEndianBytes extra;
  extra.add(kZip64Field).add(uint16_t{16}).add(member.size).add(member.compressed_size);
  const uint64_t start = file.position() + kLocalHeaderSize + member.name.size() + kZip64FieldSize + kFieldHeaderSize;
  const auto padding = static_cast<uint16_t>((kMemberAlignment - start % kMemberAlignment) % kMemberAlignment);
  extra.add(kAlignmentField).add(padding).add_text(std::string(padding, '\0'));
  LittleEndianBytes header;
  header.add_text("PK\x03\x04").add(kVersion);
  add_description(header, member);
  header.add(kSeeZip64Field).add(kSeeZip64Field);
  header.add(static_cast<uint16_t>(member.name.size())).add(static_cast<uint16_t>(extra.bytes().size()));
  header.add_text(member.name).add_text(extra.bytes());
  file.write(header.bytes());
}

void write_zip_directory(AtomicFile& file, const std::vector<ZipMember>& members) {
  const uint64_t start = file.position();
  for (const ZipMember& member : members) write_directory_entry(file, member);
  const uint64_t end = file.position();
  const uint64_t count = members.size();
  const bool zip64 = count >= 0xffff || end >= kSeeZip64;
  LittleEndianBytes record;
  if (zip64) {
    record.add_text("PK\x06\x06").add(uint64_t{44}).add(kVersion).add(kVersion).add(uint32_t{0}).add(uint32_t{0});
    record.add(count).add(count).add(end - start).add(start);
    record.add_text("PK\x06\x07").add(uint32_t{0}).add(end).add(uint32_t{1});
  }
  const auto short_count = zip64 ? uint16_t{0xffff} : static_cast<uint16_t>(count);
  record.add_text("PK\x05\x06").add(uint16_t{0}).add(uint16_t{0}).add(short_count).add(short_count);
  record.add(zip64 ? kSeeZip64Field : static_cast<uint32_t>(end - start))
      .add(zip64 ? kSeeZip64Field : static_cast<uint32_t>(start));
  record.add(uint16_t{0});
  file.write(record.bytes());
}

}  // namespace lockstep::data::detail
