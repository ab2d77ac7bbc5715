#include "lockstep/data/formats/numpy/zip.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/stream/files.h"

namespace lockstep::data::detail {
namespace {

constexpr size_t kLocalHeaderSize = 30;
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

[[noreturn]] void fail(const Origin& origin, std::string_view rule, uint64_t offset) {
  LOCKSTEP_THROW(DataError, "[", origin.operation, "] ", rule, ": ", origin.where, ", offset=", offset);
}

ZipArchive zip_archive(std::string_view archive, const Origin& origin) {
  return {archive.size(),
          [archive](uint64_t offset, std::span<char> target) {
            std::memcpy(target.data(), archive.data() + offset, target.size());
          },
          [&origin](std::string_view rule, uint64_t offset) { fail(origin, rule, offset); }};
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
  return read_zip_directory(zip_archive(archive, origin));
}

Bytes zip_contents(const Bytes& archive, const ZipMember& member, const Origin& origin) {
  if (member.is_encrypted()) fail(origin, "encrypted members are not read", member.offset);
  const std::string_view view = archive;
  const uint64_t start = zip_contents_offset(zip_archive(view, origin), member);
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
