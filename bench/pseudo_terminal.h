#pragma once

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

namespace lockstep::bench {

/// While it lives, standard error is a terminal of 100 columns whose output a thread reads and forgets.
class PseudoTerminal {
 public:
  PseudoTerminal() : before_(::dup(STDERR_FILENO)), leader_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (leader_ < 0 || ::grantpt(leader_) != 0 || ::unlockpt(leader_) != 0) return;
    const int follower = ::open(::ptsname(leader_), O_RDWR | O_NOCTTY);
    if (follower < 0) return;
    winsize size{};
    size.ws_col = 100;
    ::ioctl(leader_, TIOCSWINSZ, &size);
    ::dup2(follower, STDERR_FILENO);
    ::close(follower);
    reader_ = std::thread([this] { read(); });
  }
  ~PseudoTerminal() {
    is_over_ = true;
    if (reader_.joinable()) reader_.join();
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    if (leader_ >= 0) ::close(leader_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

 private:
  void read() const {
    char buffer[4096];
    while (!is_over_) {
      pollfd ready{leader_, POLLIN, 0};
      if (::poll(&ready, 1, 50) > 0 && ::read(leader_, buffer, sizeof(buffer)) <= 0) return;
    }
  }

  int before_;
  int leader_;
  std::atomic<bool> is_over_{false};
  std::thread reader_;
};

}  // namespace lockstep::bench
