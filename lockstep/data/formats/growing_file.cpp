#include "lockstep/data/formats/growing_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {
namespace {

constexpr size_t kBlock = size_t{256} << 10;
constexpr int kPermissions = 0666;  // less the user's mask

}  // namespace

GrowingFile::GrowingFile(std::string path, std::string operation)
    : path_(std::move(path)),
      operation_(std::move(operation)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kPermissions)) {
  LOCKSTEP_CHECK_DATA(descriptor_ >= 0, "[", operation_, "] the file must be writable: file=\"", path_, "\" (",
                      std::strerror(errno), ")");
}

GrowingFile::~GrowingFile() {
  try {
    close();
  } catch (const c10::Error&) {  // nobody is left to be told; close() is for those who ask
  }
}

void GrowingFile::write(std::string_view bytes) {
  LOCKSTEP_CHECK_VALUE(is_open(), "[", operation_, "] the file was closed: file=\"", path_, "\"");
  if (pending_.size() + bytes.size() > kBlock) flush();
  if (bytes.size() >= kBlock) {
    write_out(bytes);
  } else {
    pending_ += bytes;
  }
}

void GrowingFile::flush() {
  if (!is_open()) return;
  const std::string bytes = std::exchange(pending_, {});
  write_out(bytes);
}

void GrowingFile::close() {
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

void GrowingFile::write_out(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    LOCKSTEP_CHECK_DATA(written >= 0, "[", operation_, "] the file could not be written: file=\"", path_, "\" (",
                        std::strerror(errno), ")");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace lockstep::data::detail
