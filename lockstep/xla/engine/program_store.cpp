#include "lockstep/xla/engine/program_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".program";
constexpr std::string_view kTemporary = "writing.";
/// Older temporary files belong to processes that have died.
constexpr auto kLongestWrite = std::chrono::hours(1);

/// How a file begins; key and program follow.
struct FileHeader {
  char magic[16];
  uint64_t key_size;
  uint64_t program_size;
  uint64_t checksum;
};
constexpr char kMagic[16] = "lockstep XLA 1\n";

uint64_t hash_of(std::string_view bytes, uint64_t hash = 1469598103934665603u) {
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    hash = (hash ^ word) * 1099511628211u;
    hash ^= hash >> 29;
  }
  for (; i < bytes.size(); ++i) hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 1099511628211u;
  return hash ^ bytes.size();
}

uint64_t checksum_of(std::string_view key, std::string_view program) { return hash_of(program, hash_of(key)); }

FileHeader header_of(std::string_view key, std::string_view program) {
  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key_size = key.size();
  header.program_size = program.size();
  header.checksum = checksum_of(key, program);
  return header;
}

std::string_view bytes_of(const FileHeader& header) { return {reinterpret_cast<const char*>(&header), sizeof(header)}; }

std::optional<std::string> contents_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return std::nullopt;
  std::string contents(static_cast<size_t>(std::max<std::streamoff>(stream.tellg(), 0)), '\0');
  stream.seekg(0).read(contents.data(), static_cast<std::streamsize>(contents.size()));
  if (!stream) return std::nullopt;
  return contents;
}

/// A file under a temporary name, which is removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& folder) : path_(folder / (std::string(kTemporary) + "XXXXXX")) {
    descriptor_ = ::mkstemp(path_.data());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  bool write(std::string_view bytes) const {
    while (!bytes.empty() && descriptor_ >= 0) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return descriptor_ >= 0;
  }

  bool rename_to(const fs::path& file) {
    if (::rename(path_.c_str(), file.c_str()) != 0) return false;
    path_.clear();
    return true;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

std::string complaint_about_folder(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return std::strerror(errno);
  if (!S_ISDIR(status.st_mode)) return "it is no folder";
  if (status.st_uid != ::geteuid()) return c10::str("it belongs to user ", status.st_uid);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "it is writable by other users";
  return ::access(folder.c_str(), R_OK | W_OK | X_OK) == 0 ? "" : std::strerror(errno);
}

bool begins_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

}  // namespace

ProgramStore::ProgramStore(fs::path folder, int64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {
  std::error_code failed;
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "folder/"
  fs::create_directories(folder_.parent_path(), failed);
  ::mkdir(folder_.c_str(), S_IRWXU);
  const std::string complaint = complaint_about_folder(folder_);
  LOCKSTEP_CHECK_VALUE(complaint.empty(), "[xla] programs must be stored in a folder of this user that others cannot ",
                       "write: LOCKSTEP_XLA_CACHE=", folder_.string(), " (", complaint, ")");
}

fs::path ProgramStore::file_of(std::string_view key) const {
  char name[40];
  std::snprintf(name, sizeof(name), "%016llx%016llx", static_cast<unsigned long long>(hash_of(key)),
                static_cast<unsigned long long>(hash_of(key, 0x9e3779b97f4a7c15u)));
  return folder_ / (name + std::string(kExtension));
}

std::optional<std::string> ProgramStore::find(std::string_view key) const {
  const fs::path file = file_of(key);
  std::optional<std::string> contents = contents_of(file);
  if (!contents) return std::nullopt;
  FileHeader header{};
  std::string_view rest = *contents;
  const bool is_long_enough = rest.size() >= sizeof(header) + key.size();
  if (is_long_enough) {
    std::memcpy(&header, rest.data(), sizeof(header));
    rest.remove_prefix(sizeof(header));
  }
  const bool is_whole =
      is_long_enough && bytes_of(header_of(rest.substr(0, key.size()), rest.substr(key.size()))) == bytes_of(header);
  if (!is_whole || rest.substr(0, key.size()) != key) {
    LOCKSTEP_LOG(Info) << "a stored program is damaged, or of another key, and is compiled again: " << file.string();
    return std::nullopt;
  }
  std::error_code ignored;
  fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
  contents->erase(0, sizeof(header) + key.size());
  return contents;
}

void ProgramStore::put(std::string_view key, std::string_view program) const {
  const FileHeader header = header_of(key, program);
  if (static_cast<int64_t>(sizeof(header) + key.size() + program.size()) > limit_bytes_) {
    LOCKSTEP_LOG(Info) << "a program of " << program.size() << " bytes is larger than LOCKSTEP_XLA_CACHE_MIB allows";
    return;
  }
  TemporaryFile file(folder_);
  if (!file.write(bytes_of(header)) || !file.write(key) || !file.write(program) || !file.rename_to(file_of(key))) {
    LOCKSTEP_LOG(Warn) << "a program could not be stored in LOCKSTEP_XLA_CACHE=" << folder_.string() << ": "
                       << std::strerror(errno);
    return;
  }
  remove_least_recently_used();
}

void ProgramStore::remove(std::string_view key) const {
  std::error_code ignored;
  fs::remove(file_of(key), ignored);
}

// Other processes may add and remove files meanwhile; one that is gone is skipped.
void ProgramStore::remove_least_recently_used() const {
  struct Stored {
    fs::file_time_type used;
    int64_t bytes;
    fs::path file;
  };
  std::vector<Stored> all;
  int64_t total = 0;
  std::error_code failed;
  for (fs::directory_iterator entry(folder_, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code gone;
    const auto used = entry->last_write_time(gone);
    const auto bytes = gone ? 0 : static_cast<int64_t>(entry->file_size(gone));
    if (gone) continue;
    const std::string name = entry->path().filename();
    if (begins_with(name, kTemporary) && fs::file_time_type::clock::now() - used > kLongestWrite) {
      fs::remove(entry->path(), gone);
    } else if (entry->path().extension() == kExtension) {
      all.push_back({used, bytes, entry->path()});
      total += bytes;
    }
  }
  std::sort(all.begin(), all.end(), [](const Stored& a, const Stored& b) { return a.used < b.used; });
  for (size_t i = 0; i < all.size() && total > limit_bytes_; ++i) {
    std::error_code gone;
    fs::remove(all[i].file, gone);
    total -= all[i].bytes;
  }
}

}  // namespace lockstep::xla
