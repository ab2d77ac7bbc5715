#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/files_impl.h"
#include "lockstep/data/formats/npz.h"
#include "lockstep/data/formats/zip_impl.h"

namespace lockstep::data {
namespace {

using detail::ZipMember;

constexpr size_t kDataAlignment = 64;
constexpr size_t kLocalHeaderSize = 30;
constexpr uint32_t kSeeZip64 = 0xffffffff;
constexpr uint16_t kVersion = 45;  // the first with zip64
constexpr uint16_t kUtf8Names = 0x0800;
constexpr uint16_t kFirstDay = 0x21;  // 1 January 1980: the same arrays make the same file
constexpr uint16_t kZip64Field = 1;
// A field that nobody reads, as Android's archives have it, so that data is aligned.
constexpr uint16_t kAlignmentField = 0xd935;
constexpr size_t kZip64FieldSize = 20;
constexpr size_t kFieldHeaderSize = 4;

// Little endian numbers, one after the other.
class Record {
 public:
  template <class T>
  Record& add(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
    return *this;
  }
  Record& add_text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// What the local header and the list of members have in common.
void add_description(Record& record, const ZipMember& member) {
  record.add(member.flags).add(member.method).add(uint16_t{0}).add(kFirstDay).add(member.crc);
}

// Sizes stand in a zip64 field always: a header is written before it matters, and NumPy does so too.
void write_local_header(detail::WholeFile& file, const ZipMember& member) {
  Record extra;
  extra.add(kZip64Field).add(uint16_t{16}).add(member.size).add(member.compressed_size);
  const uint64_t start = file.position() + kLocalHeaderSize + member.name.size() + kZip64FieldSize + kFieldHeaderSize;
  const auto padding = static_cast<uint16_t>((kDataAlignment - start % kDataAlignment) % kDataAlignment);
  extra.add(kAlignmentField).add(padding).add_text(std::string(padding, '\0'));
  Record header;
  header.add_text("PK\x03\x04").add(kVersion);
  add_description(header, member);
  header.add(kSeeZip64).add(kSeeZip64);
  header.add(static_cast<uint16_t>(member.name.size())).add(static_cast<uint16_t>(extra.bytes().size()));
  header.add_text(member.name).add_text(extra.bytes());
  file.write(header.bytes());
}

void write_directory_entry(detail::WholeFile& file, const ZipMember& member) {
  const uint64_t largest = std::max({member.size, member.compressed_size, member.offset});
  const bool zip64 = largest >= kSeeZip64;
  const auto short_form = [&](uint64_t value) { return zip64 ? kSeeZip64 : static_cast<uint32_t>(value); };
  Record extra;
  if (zip64) {
    extra.add(kZip64Field).add(uint16_t{24}).add(member.size).add(member.compressed_size).add(member.offset);
  }
  Record entry;
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

void write_directory(detail::WholeFile& file, const std::vector<ZipMember>& members) {
  const uint64_t start = file.position();
  for (const ZipMember& member : members) write_directory_entry(file, member);
  const uint64_t end = file.position();
  const uint64_t count = members.size();
  const bool zip64 = count >= 0xffff || end >= kSeeZip64;
  Record record;
  if (zip64) {
    record.add_text("PK\x06\x06").add(uint64_t{44}).add(kVersion).add(kVersion).add(uint32_t{0}).add(uint32_t{0});
    record.add(count).add(count).add(end - start).add(start);
    record.add_text("PK\x06\x07").add(uint32_t{0}).add(end).add(uint32_t{1});
  }
  const auto short_count = zip64 ? uint16_t{0xffff} : static_cast<uint16_t>(count);
  record.add_text("PK\x05\x06").add(uint16_t{0}).add(uint16_t{0}).add(short_count).add(short_count);
  record.add(zip64 ? kSeeZip64 : static_cast<uint32_t>(end - start))
      .add(zip64 ? kSeeZip64 : static_cast<uint32_t>(start));
  record.add(uint16_t{0});
  file.write(record.bytes());
}

ZipMember write_member(detail::WholeFile& file, const std::string& name, const at::Tensor& tensor,
                       NpzCompression compression) {
  const std::string header = detail::npy_header_of(tensor, "save_npz");
  const at::Tensor written = detail::writable_npy(tensor);
  const std::string_view data = detail::memory_of(written);
  ZipMember member;
  member.name = name + ".npy";
  LOCKSTEP_CHECK_VALUE(member.name.size() <= 0xffff, "[save_npz] a name has at most 65531 bytes: bytes=", name.size());
  member.flags = kUtf8Names;
  member.offset = file.position();
  member.size = header.size() + data.size();
  member.crc = detail::zip_crc(data, detail::zip_crc(header));
  if (compression == NpzCompression::Stored) {
    member.compressed_size = member.size;
    write_local_header(file, member);
    file.write(header);
    file.write(data);
    return member;
  }
  member.method = 8;
  const std::string compressed = detail::zip_deflate({header, data});
  member.compressed_size = compressed.size();
  write_local_header(file, member);
  file.write(compressed);
  return member;
}

}  // namespace

void save_npz(const std::string& path, const std::map<std::string, at::Tensor>& arrays, const SaveNpzOptions& options) {
  detail::WholeFile file(path, "save_npz");
  std::vector<ZipMember> members;
  for (const auto& [name, tensor] : arrays) members.push_back(write_member(file, name, tensor, options.compression));
  write_directory(file, members);
  file.complete();
}

}  // namespace lockstep::data
