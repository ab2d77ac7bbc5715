#include "lockstep/comm/job/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include "lockstep/comm/job/process.h"

namespace lockstep::comm::job {
namespace {

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

Clock::time_point deadline_in(std::chrono::milliseconds wait) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return Clock::now() + std::clamp(wait, std::chrono::milliseconds(0), kYear);
}

Socket::Socket(int descriptor) : descriptor_(descriptor) {
  if (descriptor_ >= 0) keep_from_children(descriptor_);
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
  if (socket) enable(socket, IPPROTO_TCP, TCP_NODELAY);
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
