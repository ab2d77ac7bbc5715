#include "lockstep/base/progress/error_output.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::progress {
namespace {

constexpr size_t kMostWaiting = size_t{1} << 20;
/// A pipe that takes anything takes as much.
constexpr size_t kPiece = 4096;

}  // namespace

void ErrorOutput::open() {
  if (!waiting_.empty()) return;
  close();
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0) return;
  is_socket_ = S_ISSOCK(status.st_mode);
  if (!S_ISCHR(status.st_mode) && !S_ISFIFO(status.st_mode)) return;
  own_ = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void ErrorOutput::close() {
  if (own_ >= 0) ::close(own_);
  own_ = -1;
  is_socket_ = false;
}

bool ErrorOutput::takes_more(int milliseconds) const {
  pollfd output{own_ >= 0 ? own_ : STDERR_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, milliseconds) > 0;
}

bool ErrorOutput::is_ready() { return flush() && takes_more(0); }

ssize_t ErrorOutput::write_some() {
  if (own_ >= 0) return ::write(own_, waiting_.data(), waiting_.size());
  if (is_socket_) return ::send(STDERR_FILENO, waiting_.data(), waiting_.size(), MSG_DONTWAIT);
  if (!takes_more(0)) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(STDERR_FILENO, waiting_.data(), std::min(waiting_.size(), kPiece));
}

bool ErrorOutput::flush() {
  while (!waiting_.empty()) {
    const ssize_t written = write_some();
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return false;
    waiting_.erase(0, written > 0 ? static_cast<size_t>(written) : std::string::npos);  // or nobody is left to be told
    if (!waiting_.empty() || num_left_out_ == 0) continue;
    waiting_ = "(" + std::to_string(num_left_out_) + " lines are left out: they were not read for too long)\n";
    num_left_out_ = 0;
  }
  return true;
}

void ErrorOutput::write(std::string_view text) {
  waiting_ += text;
  flush();
}

void ErrorOutput::write_line(std::string_view line) {
  if (waiting_.size() + line.size() > kMostWaiting && !flush()) {
    ++num_left_out_;
    return;
  }
  waiting_ += line;
  waiting_ += '\n';
  flush();
}

void ErrorOutput::flush_for(std::chrono::milliseconds time) {
  const auto limit = std::chrono::steady_clock::now() + time;
  while (!flush()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !takes_more(static_cast<int>(left.count()))) return;
  }
}

}  // namespace lockstep::progress
