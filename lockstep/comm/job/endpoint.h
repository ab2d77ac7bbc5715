#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::comm::job {

/// A host and a port, as people write them: `10.0.0.1:8888`, `node1:8888`, `[fd00::1]:8888`.
struct Endpoint {
  std::string host;
  uint16_t port = 0;

  std::string text() const;
};

/// Reads one; ValueError says what is wrong with it.
Endpoint parse_endpoint(const std::string& text);

/// Returns whether the host is this machine seen from itself: 127.x, ::1, localhost.
bool is_loopback(const std::string& host);

/// One address of a network interface of this machine.
struct InterfaceAddress {
  std::string interface;
  std::string address;
};

/// Returns those of all interfaces that are up, IPv4 first.
std::vector<InterfaceAddress> interface_addresses();

/// Returns the address that `name` stands for: itself, where it is one of this machine's, or the first one of the
/// interface of that name. ValueError lists those there are.
std::string resolve_interface(const std::string& name);

/// Returns what tells this machine, since it was started, from all others.
std::string machine_id();

}  // namespace lockstep::comm::job
