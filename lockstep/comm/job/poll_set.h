#pragma once

#include <algorithm>
#include <cstddef>
#include <poll.h>
#include <vector>

#include "lockstep/comm/job/channel.h"

namespace lockstep::comm::job {

/// The sockets that a thread waits for. Made anew for each wait; places in it are given out in order.
class PollSet {
 public:
  /// A negative descriptor takes a place and is never ready.
  size_t add(int descriptor, short events = POLLIN) {
    entries_.push_back({descriptor, events, 0});
    return entries_.size() - 1;
  }
  size_t add(const Channel& channel) {
    return add(channel.socket().descriptor(), static_cast<short>(POLLIN | (channel.has_unsent() ? POLLOUT : 0)));
  }
  /// Waits until one is ready, or the time has come.
  void wait_until(Clock::time_point time) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now()).count();
    poll(entries_.data(), entries_.size(), static_cast<int>(std::clamp<long>(left, 0, 60'000)));
  }
  bool is_readable(size_t place) const { return (entries_[place].revents & ~POLLOUT) != 0; }
  bool is_writable(size_t place) const { return (entries_[place].revents & POLLOUT) != 0; }

 private:
  std::vector<pollfd> entries_;
};

}  // namespace lockstep::comm::job
