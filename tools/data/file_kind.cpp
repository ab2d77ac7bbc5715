#include "tools/data/file_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/records/record_reader.h"

namespace lockstep::tools {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_text(std::string_view head) {
  return std::none_of(head.begin(), head.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f';
  });
}

bool has_a_record(const std::string& path) {
  try {
    data::RecordReader reader(path);
    data::Bytes record;
    return reader.next(record);
  } catch (const DataError&) {
    return false;
  }
}

FileKind kind_by_name(const std::string& name) {
  std::string path = name;
  std::transform(path.begin(), path.end(), path.begin(), [](unsigned char c) { return std::tolower(c); });
  if (path.find(".tfrecord") != std::string::npos) return FileKind::Records;
  if (ends_with(path, ".csv") || ends_with(path, ".csv.gz")) return FileKind::Csv;
  if (ends_with(path, ".npy")) return FileKind::Npy;
  if (ends_with(path, ".npz")) return FileKind::Npz;
  if (ends_with(path, ".tar") || ends_with(path, ".tar.gz") || ends_with(path, ".tgz") || ends_with(path, ".tar.zst")) {
    return FileKind::Tar;
  }
  if (ends_with(path, ".txt") || ends_with(path, ".txt.gz")) return FileKind::Text;
  return FileKind::Unknown;
}

}  // namespace

FileKind file_kind(const std::string& path) {
  using namespace std::string_view_literals;
  const auto file = data::Buffer::map_file(path, "data");
  const std::string_view head(file->data(), std::min<size_t>(file->size(), 4096));
  const FileKind named = kind_by_name(path);
  if (head.substr(0, 6) == "\x93NUMPY"sv) return FileKind::Npy;
  if (head.substr(0, 4) == "PK\x03\x04"sv || head.substr(0, 4) == "PK\x05\x06"sv) return FileKind::Npz;
  if (head.substr(0, 3) == "\xff\xd8\xff"sv) return FileKind::Jpeg;
  if (head.substr(0, 4) == "\x89PNG"sv) return FileKind::Png;
  if (head.size() > 262 && head.substr(257, 5) == "ustar"sv) return FileKind::Tar;
  if (named != FileKind::Unknown) return named;
  if (has_a_record(path)) return FileKind::Records;
  return is_text(head) ? FileKind::Text : FileKind::Unknown;
}

const char* kind_name(FileKind kind) {
  static constexpr std::array kNames{"tfrecord", "npy", "npz", "tar", "jpeg", "png", "csv", "text", "unknown"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace lockstep::tools
