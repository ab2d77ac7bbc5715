#include "lockstep/state/formats/zip_directory.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

constexpr uint32_t kEndMark = 0x06054b50;
constexpr uint32_t kEnd64Mark = 0x06064b50;
constexpr uint32_t kEnd64PlaceMark = 0x07064b50;
constexpr uint32_t kDirectoryMark = 0x02014b50;
constexpr uint32_t kMemberMark = 0x04034b50;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kEnd64Bytes = 56;
constexpr int64_t kEnd64PlaceBytes = 20;
constexpr int64_t kDirectoryBytes = 46;
constexpr int64_t kMemberBytes = 30;
constexpr int64_t kLargestComment = 65535;
/// Of a directory: a million members.
constexpr int64_t kLargestDirectory = int64_t{256} << 20;
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kWideFields = 1;

/// Little-endian numbers of an archive.
class ZipReader {
 public:
  ZipReader(const ReadBytes& read, int64_t num_bytes, const std::string& place)
      : read_(read), num_bytes_(num_bytes), place_(place) {}

  std::string bytes(int64_t offset, int64_t count) const {
    check(offset >= 0 && count >= 0 && count <= num_bytes_ && offset <= num_bytes_ - count, "a part is outside of it");
    std::string result(static_cast<size_t>(count), '\0');
    read_(offset, result);
    return result;
  }

  /// The number in `text` at `offset`.
  template <class T>
  T number(const std::string& text, size_t offset) const {
    check(offset <= text.size() && sizeof(T) <= text.size() - offset, "a field is cut");
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(text[offset + i])) << (8 * i);
    }
    return static_cast<T>(value);
  }

  void check(bool condition, const char* what) const {
    LOCKSTEP_CHECK_DATA(condition, "[", place_, "] the zip archive is damaged: ", what);
  }

  int64_t size() const { return num_bytes_; }
  const std::string& place() const { return place_; }

 private:
  const ReadBytes& read_;
  int64_t num_bytes_;
  const std::string& place_;
};

struct DirectoryPlace {
  int64_t offset = 0;
  int64_t num_bytes = 0;
};

DirectoryPlace find_directory(const ZipReader& zip) {
  const int64_t tail = std::min(zip.size(), kEndBytes + kLargestComment);
  const std::string text = zip.bytes(zip.size() - tail, tail);
  int64_t end = tail - kEndBytes;
  while (end >= 0 && zip.number<uint32_t>(text, static_cast<size_t>(end)) != kEndMark) --end;
  zip.check(end >= 0, "it has no directory");
  const int64_t place_of_end = zip.size() - tail + end;
  DirectoryPlace place{zip.number<uint32_t>(text, static_cast<size_t>(end) + 16),
                       zip.number<uint32_t>(text, static_cast<size_t>(end) + 12)};
  if (place_of_end < kEnd64PlaceBytes) return place;
  const std::string wide = zip.bytes(place_of_end - kEnd64PlaceBytes, kEnd64PlaceBytes);
  if (zip.number<uint32_t>(wide, 0) != kEnd64PlaceMark) return place;
  const std::string end64 = zip.bytes(zip.number<int64_t>(wide, 8), kEnd64Bytes);
  zip.check(zip.number<uint32_t>(end64, 0) == kEnd64Mark, "the end of the directory is wrong");
  return {zip.number<int64_t>(end64, 48), zip.number<int64_t>(end64, 40)};
}

/// Replaces sizes and offset by those of the extra fields, where these are wide.
void take_wide_fields(const ZipReader& zip, const std::string& extra, int64_t& size, int64_t& stored, int64_t& offset) {
  constexpr int64_t kInExtra = 0xffffffff;
  for (size_t i = 0; i + 4 <= extra.size();) {
    const auto tag = zip.number<uint16_t>(extra, i);
    const size_t count = zip.number<uint16_t>(extra, i + 2);
    i += 4;
    if (tag != kWideFields) {
      i += count;
      continue;
    }
    for (int64_t* field : {&size, &stored, &offset}) {
      if (*field != kInExtra) continue;
      *field = zip.number<int64_t>(extra, i);
      i += 8;
    }
    return;
  }
}

}  // namespace

std::map<std::string, ZipMember> read_zip_directory(const ReadBytes& read, int64_t num_bytes,
                                                    const std::string& place) {
  const ZipReader zip(read, num_bytes, place);
  const DirectoryPlace where = find_directory(zip);
  zip.check(where.num_bytes >= 0 && where.num_bytes <= kLargestDirectory, "the directory is too large");
  const std::string directory = zip.bytes(where.offset, where.num_bytes);
  std::map<std::string, ZipMember> members;
  for (size_t i = 0; i < directory.size();) {
    zip.check(zip.number<uint32_t>(directory, i) == kDirectoryMark, "the directory is wrong");
    const size_t name_bytes = zip.number<uint16_t>(directory, i + 28);
    const size_t extra_bytes = zip.number<uint16_t>(directory, i + 30);
    const size_t comment_bytes = zip.number<uint16_t>(directory, i + 32);
    const size_t next = i + kDirectoryBytes + name_bytes + extra_bytes + comment_bytes;
    zip.check(next <= directory.size(), "the directory is cut");
    const std::string name = directory.substr(i + kDirectoryBytes, name_bytes);
    const bool plain =
        zip.number<uint16_t>(directory, i + 10) == 0 && (zip.number<uint16_t>(directory, i + 8) & kEncrypted) == 0;
    int64_t stored = zip.number<uint32_t>(directory, i + 20);
    int64_t size = zip.number<uint32_t>(directory, i + 24);
    int64_t offset = zip.number<uint32_t>(directory, i + 42);
    take_wide_fields(zip, directory.substr(i + kDirectoryBytes + name_bytes, extra_bytes), size, stored, offset);
    zip.check(!plain || size == stored, "sizes of a member differ");
    const std::string start = zip.bytes(offset, kMemberBytes);
    zip.check(zip.number<uint32_t>(start, 0) == kMemberMark, "the start of a member is wrong");
    const int64_t data = offset + kMemberBytes + zip.number<uint16_t>(start, 26) + zip.number<uint16_t>(start, 28);
    zip.check(stored >= 0 && stored <= num_bytes && data <= num_bytes - stored, "a member is cut");
    zip.check(members.emplace(name, ZipMember{data, stored, plain}).second, "a name is there twice");
    i = next;
  }
  return members;
}

}  // namespace lockstep::detail
