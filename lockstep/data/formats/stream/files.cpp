#include "lockstep/data/formats/stream/files.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/mapped_file.h"
#include "lockstep/data/formats/stream/file_access.h"
#include "lockstep/data/formats/stream/file_blocks.h"

namespace lockstep::data::detail {
namespace {

constexpr size_t kWriteBlock = size_t{256} << 10;
constexpr int kPermissions = 0666;  // less the user's mask

std::string partial_path(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  return c10::str(path, ".", ::getpid(), "-", count++, ".partial");
}

}  // namespace

Bytes map_whole(const std::string& path, std::string_view operation) {
  auto buffer = Buffer::map_file(path, operation);
  const std::string_view all(buffer->data(), buffer->size());
  return {std::move(buffer), all};
}

Bytes map_or_read(const std::string& path, std::string_view operation) {
  const bool reads = resolve_access(FileAccess::Auto, path) == FileAccess::Read;
  return reads ? read_whole(path, operation) : map_whole(path, operation);
}

c10::intrusive_ptr<Buffer> map_private(const std::string& path, std::string_view operation) {
  return map_pages(path, operation, MapMode::Writable);
}

OutputFile::OutputFile(std::string path, std::string operation)
    : path_(std::move(path)),
      operation_(std::move(operation)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kPermissions)) {
  LOCKSTEP_CHECK_DATA(descriptor_ >= 0, "[", operation_, "] the file must be writable: file=\"", path_, "\" (",
                      std::strerror(errno), ")");
}

OutputFile::~OutputFile() {
  try {
    close();
  } catch (const c10::Error&) {  // a destructor must not throw
  }
}

void OutputFile::write(std::string_view bytes) {
  LOCKSTEP_CHECK_VALUE(is_open(), "[", operation_, "] the file was closed: file=\"", path_, "\"");
  if (pending_.size() + bytes.size() > kWriteBlock) flush();
  if (bytes.size() >= kWriteBlock) {
    write_out(bytes);
  } else {
    pending_ += bytes;
  }
}

void OutputFile::flush() {
  if (!is_open()) return;
  const std::string bytes = std::exchange(pending_, {});
  write_out(bytes);
}

void OutputFile::close() {
  if (!is_open()) return;
  try {
    flush();
  } catch (...) {
    ::close(std::exchange(descriptor_, -1));
    throw;
  }
  const int code = ::close(std::exchange(descriptor_, -1));
  LOCKSTEP_CHECK_DATA(code == 0, "[", operation_, "] the file could not be closed: file=\"", path_, "\" (",
                      std::strerror(errno), ")");
}

void OutputFile::write_out(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    LOCKSTEP_CHECK_DATA(written >= 0, "[", operation_, "] the file could not be written: file=\"", path_, "\" (",
                        std::strerror(errno), ")");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

AtomicFile::AtomicFile(std::string path, std::string operation)
    : path_(std::move(path)), operation_(std::move(operation)), file_(partial_path(path_), operation_) {}

AtomicFile::~AtomicFile() {
  if (!completed()) ::unlink(file_.path().c_str());
}

void AtomicFile::write(std::string_view bytes) {
  LOCKSTEP_CHECK_VALUE(!completed(), "[", operation_, "] the file is complete: file=\"", path_, "\"");
  file_.write(bytes);
  position_ += bytes.size();
}

void AtomicFile::complete() {
  if (completed()) return;
  file_.flush();
  file_.close();
  LOCKSTEP_CHECK_DATA(std::rename(file_.path().c_str(), path_.c_str()) == 0, "[", operation_,
                      "] the file could not be renamed: from=\"", file_.path(), "\", to=\"", path_, "\" (",
                      std::strerror(errno), ")");
}

}  // namespace lockstep::data::detail
