#include "lockstep/strategy/tpu/this_machine.h"

#include <algorithm>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>

#include "lockstep/base/host_name.h"

namespace lockstep::detail {
namespace {

/// "10.0.0.1:8470", "[::1]:8470" and "host" without the port and brackets.
std::string host_of(const std::string& address) {
  if (address.starts_with('[')) return address.substr(1, address.find(']') - 1);
  const bool has_port = std::count(address.begin(), address.end(), ':') == 1;
  return has_port ? address.substr(0, address.find(':')) : address;
}

bool is_own_name(const std::string& host) { return host == "localhost" || host == host_name(); }

bool is_same_address(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  if (a->sa_family != AF_INET6) return false;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

bool is_loopback(const sockaddr* address) {
  constexpr uint32_t kLoopbackNet = 127;
  if (address->sa_family != AF_INET) return false;
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == kLoopbackNet;
}

bool is_of_an_interface(const sockaddr* address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  for (const ifaddrs* own = first; own != nullptr; own = own->ifa_next) {
    if (is_same_address(own->ifa_addr, address)) return true;
  }
  return false;
}

}  // namespace

bool is_this_machine(const std::string& address) {
  const std::string host = host_of(address);
  if (host.empty()) return false;
  if (is_own_name(host)) return true;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &first) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(first, &::freeaddrinfo);
  for (const addrinfo* found = first; found != nullptr; found = found->ai_next) {
    if (is_loopback(found->ai_addr) || is_of_an_interface(found->ai_addr)) return true;
  }
  return false;
}

}  // namespace lockstep::detail
