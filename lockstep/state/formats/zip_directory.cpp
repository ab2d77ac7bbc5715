#include "lockstep/state/formats/zip_directory.h"

#include "lockstep/base/error.h"
#include "lockstep/base/zip_directory.h"

namespace lockstep::detail {

std::map<std::string, StoredMember> stored_members(const ReadBytes& read, int64_t num_bytes, const std::string& place) {
  const ZipArchive archive{static_cast<uint64_t>(num_bytes),
                           [&](uint64_t offset, std::span<char> target) { read(static_cast<int64_t>(offset), target); },
                           [&](std::string_view rule, uint64_t offset) {
                             LOCKSTEP_THROW(DataError, "[", place, "] the zip archive is damaged: ", rule,
                                            ": offset=", offset);
                           }};
  std::map<std::string, StoredMember> members;
  for (const ZipMember& member : read_zip_directory(archive)) {
    const bool plain = member.method == 0 && !member.is_encrypted();
    const uint64_t begin = zip_contents_offset(archive, member);
    if (plain && member.size != member.compressed_size) archive.refuse("sizes of a member differ", member.offset);
    if (member.compressed_size > archive.size - begin) archive.refuse("a member is cut", member.offset);
    const StoredMember stored{static_cast<int64_t>(begin), static_cast<int64_t>(member.compressed_size), plain};
    if (!members.emplace(member.name, stored).second) archive.refuse("a name is there twice", member.offset);
  }
  return members;
}

}  // namespace lockstep::detail
