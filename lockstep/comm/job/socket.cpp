#include "lockstep/comm/job/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <mutex>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <set>
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/crypto.h"

namespace lockstep::comm::job {
namespace {

struct Descriptors {
  Descriptors();

  std::mutex mutex;
  std::set<int> hidden;
};

// Never destroyed: sockets may be closed while the program ends.
Descriptors& descriptors() {
  static auto* all = new Descriptors;
  return *all;
}

void lock_all() { descriptors().mutex.lock(); }

void unlock_all() { descriptors().mutex.unlock(); }

void replace_all() {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int descriptor : descriptors().hidden) dup3(nothing, descriptor, O_CLOEXEC);
  close(nothing);
  unlock_all();
}

Descriptors::Descriptors() { pthread_atfork(&lock_all, &unlock_all, &replace_all); }

/// Makes forked children get /dev/null in place of this descriptor, until `close_descriptor`.
void hide_from_children(int descriptor) {
  const std::lock_guard lock(descriptors().mutex);
  descriptors().hidden.insert(descriptor);
}

void close_descriptor(int descriptor) {
  const std::lock_guard lock(descriptors().mutex);
  descriptors().hidden.erase(descriptor);
  close(descriptor);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const char* host = endpoint.host.empty() ? nullptr : endpoint.host.c_str();
  const int code = getaddrinfo(host, std::to_string(endpoint.port).c_str(), &hints, &list);
  if (code != 0) {
    throw std::runtime_error("the name " + endpoint.host + " cannot be resolved: " + gai_strerror(code));
  }
  return {list, &freeaddrinfo};
}

[[noreturn]] void throw_system_error(int code, const std::string& what) {
  throw std::system_error(code, std::generic_category(), what);
}

Socket open_socket(const addrinfo& address) {
  const int type = address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC;
  return Socket(socket(address.ai_family, type, address.ai_protocol));
}

void enable(const Socket& socket, int level, int option) {
  const int on = 1;
  setsockopt(socket.descriptor(), level, option, &on, sizeof on);
}

/// Connections may carry nothing for hours: that of a worker to its launcher. Firewalls forget them unless packets
/// pass, and the end of the other machine is noticed by these alone.
void keep_alive(const Socket& socket) {
  constexpr int kIdleSeconds = 60;
  constexpr int kSecondsBetween = 15;
  constexpr int kUnanswered = 4;
  constexpr unsigned kUnacknowledgedMilliseconds = 120'000;
  enable(socket, SOL_SOCKET, SO_KEEPALIVE);
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMilliseconds,
             sizeof kUnacknowledgedMilliseconds);
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof kIdleSeconds);
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_KEEPINTVL, &kSecondsBetween, sizeof kSecondsBetween);
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_KEEPCNT, &kUnanswered, sizeof kUnanswered);
}

// Returns the error, 0 for none.
int connect_one(const Socket& socket, const addrinfo& address, Clock::time_point deadline) {
  if (!socket) return errno;
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_until_ready(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int code = 0;
  socklen_t size = sizeof code;
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &code, &size);
  return code;
}

using NameFunction = int (*)(int, sockaddr*, socklen_t*);

std::string name_of(const Socket& socket, NameFunction function) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return function(socket.descriptor(), address, &size) == 0 ? address_text(*address) : std::string();
}

}  // namespace

std::string Endpoint::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Endpoint parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || bracket < colon);
  LOCKSTEP_CHECK_VALUE(has_port, "[join_job] an address is host:port: address=\"", text, "\"; add the port");
  Endpoint endpoint;
  endpoint.host = text.substr(0, colon);
  const bool in_brackets = endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']';
  if (in_brackets) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  LOCKSTEP_CHECK_VALUE(in_brackets || endpoint.host.find(':') == std::string::npos,
                       "[join_job] an IPv6 address stands in brackets: address=\"", text, "\"; write [address]:port");
  LOCKSTEP_CHECK_VALUE(!endpoint.host.empty(), "[join_job] an address is host:port: address=\"", text,
                       "\"; add the host");
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  LOCKSTEP_CHECK_VALUE(read.ec == std::errc() && read.ptr == end && endpoint.port != 0,
                       "[join_job] a port is a number from 1 to 65535: address=\"", text, "\"");
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
  LOCKSTEP_CHECK_VALUE(false, "[join_job] interface_address is an interface of this machine or its address: ",
                       "interface_address=\"", name, "\"; known are ", known);
  return {};
}

std::string machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  // Without it every process counts as a machine of its own.
  return id.empty() ? random_bytes(16) : id;
}

Clock::time_point deadline_in(std::chrono::milliseconds wait) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return Clock::now() + std::clamp(wait, std::chrono::milliseconds(0), kYear);
}

Socket::Socket(int descriptor) : descriptor_(descriptor) {
  if (descriptor_ >= 0) hide_from_children(descriptor_);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

void Socket::close() {
  if (descriptor_ < 0) return;
  close_descriptor(std::exchange(descriptor_, -1));
}

Socket listen_at(const Endpoint& endpoint) {
  const Addresses addresses = resolve(endpoint, AI_PASSIVE);
  int code = EADDRNOTAVAIL;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Socket socket = open_socket(*one);
    if (socket) {
      enable(socket, SOL_SOCKET, SO_REUSEADDR);
      const bool is_bound = bind(socket.descriptor(), one->ai_addr, one->ai_addrlen) == 0;
      if (is_bound && listen(socket.descriptor(), SOMAXCONN) == 0) return socket;
    }
    code = errno;
  }
  throw_system_error(code, "listening at " + endpoint.text());
}

Socket connect_to(const Endpoint& endpoint, Clock::time_point deadline) {
  const Addresses addresses = resolve(endpoint, 0);
  int code = EADDRNOTAVAIL;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Socket socket = open_socket(*one);
    code = connect_one(socket, *one, deadline);
    if (code == 0) {
      enable(socket, IPPROTO_TCP, TCP_NODELAY);
      keep_alive(socket);
      return socket;
    }
  }
  throw_system_error(code, "connecting to " + endpoint.text());
}

Socket accept_from(const Socket& listener) {
  const int descriptor = accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    throw_system_error(errno, "accepting a connection");
  }
  Socket socket(descriptor);
  if (socket) {
    enable(socket, IPPROTO_TCP, TCP_NODELAY);
    keep_alive(socket);
  }
  return socket;
}

std::pair<Socket, Socket> connected_pair() {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw_system_error(errno, "making a pair of sockets");
  }
  return {Socket(ends[0]), Socket(ends[1])};
}

bool wait_until_ready(const Socket& socket, short events, Clock::time_point deadline) {
  pollfd entry{socket.descriptor(), events, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<long>(left, 0, 1'000'000)));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
  }
}

std::string local_address(const Socket& socket) { return name_of(socket, &getsockname); }

std::string peer_address(const Socket& socket) { return name_of(socket, &getpeername); }

std::string address_text(const sockaddr& address) {
  if (address.sa_family != AF_INET && address.sa_family != AF_INET6) return {};
  const socklen_t size = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  const std::string host = text.data();
  const std::string mapped = "::ffff:";
  return host.starts_with(mapped) ? host.substr(mapped.size()) : host;
}

}  // namespace lockstep::comm::job
