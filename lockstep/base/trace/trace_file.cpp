#include "lockstep/base/trace/trace_file.h"

#include <cerrno>
#include <unistd.h>
#include <utility>

namespace lockstep::trace::detail {
namespace {

// The system may cut a write where its process is killed, but not inside a page.
constexpr uint64_t kPage = 4096;

}  // namespace

TraceFile::TraceFile(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor), page_("[\n") {}

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
