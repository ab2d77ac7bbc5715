#include "lockstep/comm/job/endpoint.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/random_bytes.h"
#include "lockstep/comm/job/socket.h"

namespace lockstep::comm::job {

std::string Endpoint::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Endpoint parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || bracket < colon);
  LOCKSTEP_CHECK_VALUE(has_port, "[Job::join] an address is host:port: address=\"", text, "\"; add the port");
  Endpoint endpoint;
  endpoint.host = text.substr(0, colon);
  const bool in_brackets = endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']';
  if (in_brackets) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  LOCKSTEP_CHECK_VALUE(in_brackets || endpoint.host.find(':') == std::string::npos,
                       "[Job::join] an IPv6 address stands in brackets: address=\"", text, "\"; write [address]:port");
  LOCKSTEP_CHECK_VALUE(!endpoint.host.empty(), "[Job::join] an address is host:port: address=\"", text,
                       "\"; add the host");
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  LOCKSTEP_CHECK_VALUE(read.ec == std::errc() && read.ptr == end && endpoint.port != 0,
                       "[Job::join] a port is a number from 1 to 65535: address=\"", text, "\"");
  return endpoint;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      const bool is_up = (one->ifa_flags & IFF_UP) != 0;
      if (is_up && one->ifa_addr != nullptr && one->ifa_addr->sa_family == family) {
        found.push_back({one->ifa_name, address_text(*one->ifa_addr)});
      }
    }
  }
  return found;
}

std::string resolve_interface(const std::string& name) {
  const auto all = interface_addresses();
  const auto is_meant = [&](const InterfaceAddress& one) { return one.address == name || one.interface == name; };
  const auto found = std::find_if(all.begin(), all.end(), is_meant);
  if (found != all.end()) return found->address;
  std::string known;
  for (const auto& one : all) known += (known.empty() ? "" : ", ") + one.interface + " " + one.address;
  LOCKSTEP_CHECK_VALUE(false, "[Job::join] interface_address is an interface of this machine or its address: ",
                       "interface_address=\"", name, "\"; there are ", known);
}

std::string machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  // Without it no two processes can be known to share a machine.
  return id.empty() ? random_bytes(16) : id;
}

}  // namespace lockstep::comm::job
