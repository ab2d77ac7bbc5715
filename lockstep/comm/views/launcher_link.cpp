#include "lockstep/comm/views/launcher_link.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/host_name.h"
#include "lockstep/comm/job/joiner.h"
#include "lockstep/comm/views/view_message.h"

namespace lockstep::comm::views {
namespace {

using job::Clock;
using Type = ViewMessage::Type;

LauncherOrder order_of(const ViewMessage& message) {
  switch (message.type) {
    case Type::Start:
      return {LauncherOrder::Kind::Start, message.number, message.other, message.text};
    case Type::Signal:
      return {LauncherOrder::Kind::Signal, message.number, message.other};
    case Type::Finish:
      return {LauncherOrder::Kind::Finish, 0, message.number};
    default:
      throw job::ProtocolError("it sent a message that is not for launchers");
  }
}

}  // namespace

struct LauncherLink::Impl {
  void receive();
  void lose(const std::string& why);

  job::Channel channel;
  std::chrono::milliseconds interval{};
  std::chrono::milliseconds timeout{};
  Clock::time_point next_heartbeat = Clock::now();
  Clock::time_point last_heard = Clock::now();
  int64_t step = -1;
  std::vector<LauncherOrder> orders;
};

void LauncherLink::Impl::receive() {
  const bool is_open = channel.receive();
  last_heard = Clock::now();
  try {
    while (const auto content = channel.next()) {
      const ViewMessage message = decode_view_message(*content);
      if (message.type != Type::Heartbeat) orders.push_back(order_of(message));
    }
    if (!is_open) lose("it was closed");
  } catch (const job::ProtocolError& error) {
    lose(error.what());
  }
}

void LauncherLink::Impl::lose(const std::string& why) {
  channel.close();
  orders.push_back({LauncherOrder::Kind::Lost, 0, 0, why});
}

LauncherLink::LauncherLink(const std::string& address, const std::string& token, std::chrono::milliseconds timeout)
    : impl_(std::make_unique<Impl>()) {
  JobOptions options;
  options.addresses = {address};
  options.names = {"the launcher to join", "this launcher"};
  options.worker = static_cast<int>(kLauncherNumber);
  options.token = token;
  options.join_timeout = timeout;
  std::string last_error;
  job::Entrance entrance = job::enter_as_joiner(options, job::deadline_in(timeout), last_error,
                                                "start that with --listen there, or correct --join");
  impl_->channel = std::move(entrance.channel);
  impl_->interval = entrance.heartbeat_interval;
  impl_->timeout = entrance.heartbeat_timeout;
  impl_->last_heard = Clock::now();
}

LauncherLink::~LauncherLink() = default;

void LauncherLink::offer(int places) {
  impl_->channel.send(
      encode(ViewMessage{.type = Type::Offer, .number = static_cast<uint64_t>(places), .text = host_name()}));
}

void LauncherLink::exited(uint64_t worker, int status, int64_t step) {
  impl_->channel.send(encode(
      ViewMessage{.type = Type::Exited, .number = worker, .other = static_cast<uint64_t>(status), .step = step}));
}

void LauncherLink::set_progress(int64_t step) { impl_->step = step; }

std::vector<LauncherOrder> LauncherLink::wait(int descriptor, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  Impl& impl = *impl_;
  do {
    job::PollSet set;
    const size_t signals = set.add(descriptor);
    const size_t place = set.add(impl.channel);
    set.wait_until(std::min(deadline, impl.channel.is_open() ? impl.next_heartbeat : deadline));
    if (impl.channel.is_open() && set.is_writable(place)) impl.channel.flush();
    if (impl.channel.is_open() && set.is_readable(place)) impl.receive();
    const auto now = Clock::now();
    if (impl.channel.is_open() && now >= impl.next_heartbeat) {
      impl.next_heartbeat = now + impl.interval;
      impl.channel.send(encode(ViewMessage{.step = impl.step}));
      if (now - impl.last_heard > impl.timeout) impl.lose("the other launcher is silent");
    }
    if (set.is_readable(signals)) break;
  } while (impl.orders.empty() && Clock::now() < deadline);
  return std::exchange(impl.orders, {});
}

}  // namespace lockstep::comm::views
