#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/comm/job/frame.h"
#include "lockstep/comm/job/handshake.h"
#include "lockstep/comm/job/socket.h"

namespace lockstep::comm::job {

/// A connection that carries frames and never waits: what cannot be sent at once is kept until `flush` can. Not
/// thread-safe.
class Channel {
 public:
  Channel() : reader_(kStrangerLimit) {}
  explicit Channel(Socket socket) : socket_(std::move(socket)), reader_(kStrangerLimit) {}

  const Socket& socket() const { return socket_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }

  /// The peer is a member from now on: it may send more, and both sides seal their frames.
  void trust(Seal outgoing, Seal incoming);

  /// Queues a frame and sends what goes. A connection that is broken shows it when it is read.
  void send(std::string_view content);
  void flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }
  /// Says that nothing more will be sent.
  void finish_sending();

  /// Reads what has arrived; false when nothing will any more, and then `error` is the system's code, 0 for a
  /// connection that was closed.
  bool receive();
  int error() const { return error_; }
  /// Returns the next frame that was read. ProtocolError where the bytes are none.
  std::optional<std::string> next();

 private:
  Socket socket_;
  FrameReader reader_;
  Seal outgoing_seal_;
  Seal incoming_seal_;
  std::string unsent_;
  size_t sent_ = 0;
  int error_ = 0;
  int reads_at_once_ = 1;
};

}  // namespace lockstep::comm::job
