#include "lockstep/base/trace/trace_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::trace::detail {
namespace {

// The system may cut a write where its process is killed, but not inside a page.
constexpr uint64_t kPage = 4096;

}  // namespace

TraceFile::TraceFile(std::string path) : path_(std::move(path)) {
  // A job that was killed and starts again keeps the trace of its end.
  if (::rename(path_.c_str(), (path_ + ".before").c_str()) != 0 && errno != ENOENT) ::unlink(path_.c_str());
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  LOCKSTEP_CHECK_VALUE(descriptor_ >= 0, "[trace] the file must be writable: file=", path_, ", ",
                       std::generic_category().message(errno), "; choose another folder");
  page_ = "[\n";
}

TraceFile::~TraceFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TraceFile::add(std::string_view event) {
  const std::string_view separator = is_first_ ? "" : ",\n";
  is_first_ = false;
  const uint64_t size = separator.size() + event.size();
  const uint64_t used = offset_ % kPage + page_.size();
  if (used + size > kPage && used < kPage) {
    page_.append(kPage - used, ' ');
    flush();
  } else if (used == kPage) {
    flush();
  }
  page_ += separator;
  page_ += event;
}

bool TraceFile::flush() {
  size_t written = 0;
  while (!has_failed_ && written < page_.size()) {
    const ssize_t count = ::write(descriptor_, page_.data() + written, page_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      has_failed_ = true;
    } else {
      written += static_cast<size_t>(count);
    }
  }
  offset_ += written;
  page_.clear();
  return !has_failed_;
}

bool TraceFile::close() {
  page_ += "\n]\n";
  return flush();
}

}  // namespace lockstep::trace::detail
