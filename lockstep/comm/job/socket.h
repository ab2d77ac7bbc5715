#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "lockstep/api.h"

/// Addresses, sockets and network interfaces.
namespace lockstep::comm::job {

/// A host and a port: `10.0.0.1:8888`, `node1:8888`, `[fd00::1]:8888`.
struct Endpoint {
  std::string host;
  uint16_t port = 0;

  std::string text() const;
};

/// Parses an endpoint; c10::ValueError says what is wrong with the text.
Endpoint parse_endpoint(const std::string& text);

/// Returns whether the host is a loopback address: 127.x, ::1, localhost.
bool is_loopback(const std::string& host);

/// One address of a network interface of this machine.
struct InterfaceAddress {
  std::string interface;
  std::string address;
};

/// Returns the addresses of all interfaces that are up, IPv4 first.
std::vector<InterfaceAddress> interface_addresses();

/// Returns the address that `name` stands for: itself, where it is an address of this machine, or the first one of the
/// interface of that name. c10::ValueError lists the interfaces.
std::string resolve_interface(const std::string& name);

/// Returns an identifier of this machine and its boot.
std::string machine_id();

using Clock = std::chrono::steady_clock;

/// Returns the time `wait` from now. Waits are limited to a year, so that the sum does not overflow.
Clock::time_point deadline_in(std::chrono::milliseconds wait);

/// Owns a socket. It never blocks, is closed by exec, and becomes /dev/null in a forked child, so that a peer sees the
/// end of the process that opened it.
class LOCKSTEP_API Socket {
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

/// Listens at the endpoint. std::system_error, with the code of the last attempt, where it cannot; std::runtime_error
/// where the name cannot be resolved.
Socket listen_at(const Endpoint& endpoint);

/// Connects, trying all addresses of the name. The system notices within two minutes that the other end is gone (the
/// same for `accept_from`). std::system_error, with the code of the last attempt, where it cannot; std::runtime_error
/// where the name cannot be resolved.
Socket connect_to(const Endpoint& endpoint, Clock::time_point deadline);

/// Returns the next connection, or an empty socket where none is pending. std::system_error where the process has no
/// descriptors left.
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
