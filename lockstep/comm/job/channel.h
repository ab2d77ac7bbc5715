#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/job/frame.h"
#include "lockstep/comm/job/handshake.h"
#include "lockstep/comm/job/socket.h"

namespace lockstep::comm::job {

/// A nonblocking connection that carries frames: what cannot be sent at once is buffered until `flush`. Not
/// thread-safe.
class LOCKSTEP_API Channel {
 public:
  Channel() : reader_(kPendingPeerLimit) {}
  explicit Channel(Socket socket) : socket_(std::move(socket)), reader_(kPendingPeerLimit) {}

  const Socket& socket() const { return socket_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }

  /// Makes the peer a member: it may send larger frames, and both sides seal their frames.
  void trust(Seal outgoing, Seal incoming);

  /// Queues a frame and sends what the system accepts. A broken connection is detected when it is read. Where the peer
  /// does not read, more than the limit is dropped, and the connection cannot be used any more.
  void send(std::string_view content);
  void flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }
  size_t unsent_bytes() const { return unsent_.size() - sent_; }
  /// Whether a frame was dropped.
  bool is_overfull() const { return is_overfull_; }
  void limit_unsent(size_t bytes) { unsent_limit_ = bytes; }
  /// Closes the connection for sending.
  void finish_sending();

  /// Reads what has arrived; false at the end of the connection, when `error` is the system's code, or 0 where the peer
  /// closed it.
  bool receive();
  /// Reads what has arrived and throws it away; returns as `receive`.
  bool discard();
  int error() const { return error_; }
  /// Returns the next frame that was read. ProtocolError where the bytes are no frame.
  std::optional<std::string> next();

 private:
  bool read(bool keep);

  Socket socket_;
  FrameReader reader_;
  Seal outgoing_seal_;
  Seal incoming_seal_;
  std::string unsent_;
  size_t sent_ = 0;
  size_t unsent_limit_ = kUnsentLimit;
  bool is_overfull_ = false;
  int error_ = 0;
  int reads_at_once_ = 1;
};

/// The sockets that a thread waits for. A new set is made for each wait; `add` returns consecutive positions.
class PollSet {
 public:
  /// A negative descriptor takes a position and is never ready.
  size_t add(int descriptor, short events = POLLIN) {
    entries_.push_back({descriptor, events, 0});
    return entries_.size() - 1;
  }
  size_t add(const Channel& channel) {
    return add(channel.socket().descriptor(), static_cast<short>(POLLIN | (channel.has_unsent() ? POLLOUT : 0)));
  }
  /// Waits until one is ready, or until `time`.
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
