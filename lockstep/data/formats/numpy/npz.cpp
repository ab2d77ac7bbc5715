#include "lockstep/data/formats/numpy/npz.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/numpy/npy_impl.h"
#include "lockstep/data/formats/numpy/zip.h"
#include "lockstep/data/formats/stream/files.h"

namespace lockstep::data {
namespace {

using detail::Origin;
using detail::ZipMember;

constexpr std::string_view kSuffix = ".npy";
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
// Deflate makes at most this many bytes of one.
constexpr uint64_t kMaxRatio = 1032;
// No header that is read is longer.
constexpr size_t kHeaderBytes = 66000;

class NpzFile {
 public:
  NpzFile(Bytes archive, Origin origin, detail::NpyMemory memory)
      : archive_(std::move(archive)),
        origin_(std::move(origin)),
        memory_(memory),
        members_(detail::zip_directory(archive_, origin_)) {
    std::erase_if(members_, [](const ZipMember& member) { return !member.name.ends_with(kSuffix); });
  }

  const std::vector<ZipMember>& members() const { return members_; }

  static std::string array_name(const ZipMember& member) {
    return member.name.substr(0, member.name.size() - kSuffix.size());
  }

  // Returns the last member of that name, as Python does.
  const ZipMember& find(const std::string& name) const {
    const auto found = std::find_if(members_.rbegin(), members_.rend(),
                                    [&](const ZipMember& member) { return array_name(member) == name; });
    if (found != members_.rend()) return *found;
    std::string present;
    for (const ZipMember& member : members_) present += (present.empty() ? "" : ", ") + array_name(member);
    LOCKSTEP_THROW(c10::ValueError, "[", origin_.operation, "] the file must have an array of that name: name=\"", name,
                   "\", ", origin_.where, "; it has ", present.empty() ? "none" : present);
  }

  at::Tensor load(const ZipMember& member) const {
    const Origin origin = origin_of(member);
    const Bytes contents = detail::zip_contents(archive_, member, origin);
    if (member.method == kDeflated) {
      return detail::read_npy(inflated(contents, member, origin), origin, detail::NpyMemory::Shared);
    }
    check_stored(member, origin);
    const detail::NpyHeader header = detail::parse_npy_header(contents, origin);
    const bool aligned = reinterpret_cast<uintptr_t>(contents.data() + header.data_offset) % header.element.size == 0;
    const bool widened = header.element.kind == 'u' && header.element.size > 1;
    // What is copied is read anyhow.
    if (!aligned || widened || header.element.swapped) check_crc(contents, member, origin);
    return detail::read_npy(contents, origin, memory_);
  }

  ArrayInfo info(const ZipMember& member) const {
    const Origin origin = origin_of(member);
    Bytes contents = detail::zip_contents(archive_, member, origin);
    if (member.method == kDeflated) {
      std::string prefix(std::min<uint64_t>(member.size, kHeaderBytes), '\0');
      std::string problem;
      prefix.resize(detail::zip_inflate(contents, prefix.data(), prefix.size(), problem));
      contents = prefix;
    } else {
      check_stored(member, origin);
    }
    const detail::NpyHeader header = detail::parse_npy_header(contents, origin);
    return {array_name(member), header.element.dtype, header.shape};
  }

 private:
  Origin origin_of(const ZipMember& member) const {
    return {origin_.operation, c10::str(origin_.where, ", member=\"", member.name, "\"")};
  }

  static void check_stored(const ZipMember& member, const Origin& origin) {
    LOCKSTEP_CHECK_DATA(member.method == kStored, "[", origin.operation,
                        "] a member must be stored or deflated: method=", member.method, ", ", origin.where);
    LOCKSTEP_CHECK_DATA(member.size == member.compressed_size, "[", origin.operation,
                        "] a stored member has one size: size=", member.size, ", stored=", member.compressed_size, ", ",
                        origin.where);
  }

  static void check_crc(std::string_view contents, const ZipMember& member, const Origin& origin) {
    const uint32_t crc = detail::zip_crc(contents);
    LOCKSTEP_CHECK_DATA(crc == member.crc, "[", origin.operation, "] the member is damaged: ", origin.where,
                        ", expected crc=", member.crc, ", found crc=", crc);
  }

  static Bytes inflated(const Bytes& contents, const ZipMember& member, const Origin& origin) {
    LOCKSTEP_CHECK_DATA(member.size / kMaxRatio <= member.compressed_size, "[", origin.operation,
                        "] so few bytes cannot be compressed from that many: ", origin.where, ", size=", member.size,
                        ", compressed=", member.compressed_size);
    char* memory = nullptr;
    auto buffer = Buffer::allocate(member.size, &memory);
    std::string problem;
    const size_t found = detail::zip_inflate(contents, memory, member.size, problem);
    LOCKSTEP_CHECK_DATA(found == member.size, "[", origin.operation, "] the member is damaged: ", origin.where,
                        ", needed bytes=", member.size, ", found bytes=", found, " (", problem, ")");
    check_crc({memory, found}, member, origin);
    return {std::move(buffer), {memory, found}};
  }

  Bytes archive_;
  Origin origin_;
  detail::NpyMemory memory_;
  std::vector<ZipMember> members_;
};

NpzFile open_npz(const std::string& path, std::string_view operation) {
  const auto buffer = detail::map_private(path, operation);
  return {{buffer, {buffer->data(), buffer->size()}},
          {operation, c10::str("file=\"", path, "\"")},
          detail::NpyMemory::Shared};
}

std::map<std::string, at::Tensor> load_all(const NpzFile& file) {
  std::map<std::string, at::Tensor> arrays;
  for (const ZipMember& member : file.members()) {
    arrays.insert_or_assign(NpzFile::array_name(member), file.load(member));
  }
  return arrays;
}

ZipMember write_member(detail::AtomicFile& file, const std::string& name, const at::Tensor& tensor,
                       NpzCompression compression) {
  const std::string header = detail::npy_header_of(tensor, "save_npz");
  const at::Tensor written = detail::writable_npy(tensor);
  const std::string_view data = detail::memory_of(written);
  ZipMember member;
  member.name = name + ".npy";
  LOCKSTEP_CHECK_VALUE(member.name.size() <= 0xffff, "[save_npz] a name has at most 65531 bytes: bytes=", name.size());
  member.flags = detail::kZipUtf8Names;
  member.offset = file.position();
  member.size = header.size() + data.size();
  member.crc = detail::zip_crc(data, detail::zip_crc(header));
  if (compression == NpzCompression::Stored) {
    member.compressed_size = member.size;
    detail::write_zip_header(file, member);
    file.write(header);
    file.write(data);
    return member;
  }
  member.method = kDeflated;
  const std::string compressed = detail::zip_deflate({header, data});
  member.compressed_size = compressed.size();
  detail::write_zip_header(file, member);
  file.write(compressed);
  return member;
}

}  // namespace

std::map<std::string, at::Tensor> load_npz(const std::string& path) { return load_all(open_npz(path, "load_npz")); }

std::map<std::string, at::Tensor> load_npz(const std::string& path, const std::vector<std::string>& names) {
  const NpzFile file = open_npz(path, "load_npz");
  std::map<std::string, at::Tensor> arrays;
  for (const std::string& name : names) {
    if (!arrays.contains(name)) arrays.emplace(name, file.load(file.find(name)));
  }
  return arrays;
}

std::map<std::string, at::Tensor> parse_npz(const Bytes& bytes) {
  return load_all(NpzFile(bytes, {"parse_npz", c10::str("bytes=", bytes.size())}, detail::NpyMemory::Own));
}

std::vector<ArrayInfo> npz_members(const std::string& path) {
  const NpzFile file = open_npz(path, "npz_members");
  std::vector<ArrayInfo> infos;
  for (const ZipMember& member : file.members()) infos.push_back(file.info(member));
  return infos;
}

void save_npz(const std::string& path, const std::map<std::string, at::Tensor>& arrays, const SaveNpzOptions& options) {
  detail::AtomicFile file(path, "save_npz");
  std::vector<ZipMember> members;
  for (const auto& [name, tensor] : arrays) members.push_back(write_member(file, name, tensor, options.compression));
  detail::write_zip_directory(file, members);
  file.complete();
}

}  // namespace lockstep::data
