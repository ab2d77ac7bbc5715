#pragma once

#include <arpa/inet.h>
#include <cstdint>
#include <netinet/in.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep::tests {

/// Returns whether nobody listens at this port. Connections in TIME_WAIT do not count.
inline bool is_free_port(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int code = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::close(descriptor);
  return code == 0;
}

/// Returns a port that nobody uses, below those that the system gives to outgoing connections.
inline int free_port() {
  std::random_device random;
  while (true) {
    const int port = std::uniform_int_distribution(12000, 32000)(random);
    if (is_free_port(port)) return port;
  }
}

/// Connects to a port of this machine and sends these bytes; returns whether something listened there.
inline bool say_to_port(int port, const std::string& bytes) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = ::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (connected) ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::close(descriptor);
  return connected;
}

}  // namespace lockstep::tests
