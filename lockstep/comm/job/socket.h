#pragma once

#include <chrono>
#include <string>
#include <sys/socket.h>
#include <utility>

#include "lockstep/comm/job/endpoint.h"

namespace lockstep::comm::job {

using Clock = std::chrono::steady_clock;

/// Returns the time that lies `wait` ahead; a wait of years is one of a year, so that it can be added to.
Clock::time_point deadline_in(std::chrono::milliseconds wait);

/// Owns a socket. It never blocks, does not outlive exec, and is replaced by nothing in a forked child, so that a
/// peer sees the end of the process that opened it.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor);
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();

 private:
  int descriptor_ = -1;
};

/// Listens at the endpoint. std::system_error where that is not possible, with the code of the last attempt;
/// std::runtime_error where the name is not known.
Socket listen_at(const Endpoint& endpoint);

/// Connects, trying all addresses that the name has. Errors as above.
Socket connect_to(const Endpoint& endpoint, Clock::time_point deadline);

/// Returns the next connection, or none where nobody waits. std::system_error where the process has no descriptors
/// left.
Socket accept_from(const Socket& listener);

/// Returns two sockets that are connected to each other.
std::pair<Socket, Socket> connected_pair();

/// Waits until there is something to read, or to write; false at the deadline.
bool wait_until_ready(const Socket& socket, short events, Clock::time_point deadline);

/// The address, without a port, of the near or far end of a connection; empty for one inside the process.
std::string local_address(const Socket& socket);
std::string peer_address(const Socket& socket);
std::string address_text(const sockaddr& address);

}  // namespace lockstep::comm::job
