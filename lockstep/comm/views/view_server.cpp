#include "lockstep/comm/views/view_server.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/comm/job/admission.h"
#include "lockstep/comm/views/view_message.h"

namespace lockstep::comm::views {
namespace {

using namespace std::chrono_literals;
using job::Channel;
using job::Clock;
using Type = ViewMessage::Type;

constexpr std::chrono::milliseconds kHeartbeat = 1s;
/// How long sending the last messages may take.
constexpr auto kFinishTime = 1s;

JobOptions admission_options(const ViewServerOptions& options) {
  JobOptions result;
  result.addresses = {options.address};
  result.token = options.token;
  return result;
}

}  // namespace

struct ViewServer::Impl {
  struct Peer {
    Channel channel{};
    size_t place = 0;
    Clock::time_point last_heard{};
  };
  struct Launcher : Peer {
    std::set<uint64_t> workers{};
  };

  explicit Impl(const ViewServerOptions& given)
      : options(given),
        admission(admission_options(given), kViewHello, kLastWorkerNumber),
        membership(given.membership),
        next_heartbeat(Clock::now()) {}

  void welcome(job::Joiner joiner);
  void read_worker(uint64_t worker);
  void read_launcher(uint64_t number);
  void handle_worker(uint64_t worker, const ViewMessage& message);
  void handle_launcher(uint64_t number, const ViewMessage& message);
  void lose_launcher(uint64_t number, const std::string& why);
  void advance();
  void tell_of_change(Clock::time_point now);
  /// Tells the members that their view cannot go on, so that none waits until the others have joined.
  void tell_of_loss(uint64_t worker, const std::string& what_happened);
  void watch();
  std::chrono::milliseconds interval() const {
    return std::clamp<std::chrono::milliseconds>(options.worker_timeout / 5, 50ms, kHeartbeat);
  }
  void report(ViewEvent event) { events.push_back(std::move(event)); }
  void send_view(const View& view);
  Clock::time_point next_deadline() const;

  ViewServerOptions options;
  job::Admission admission;
  Membership membership;
  std::map<uint64_t, Peer> workers;
  std::map<uint64_t, Launcher> launchers;
  uint64_t last_worker = kFirstWorkerNumber - 1;
  uint64_t last_launcher = 0;
  /// The view whose members know that a change is pending.
  uint64_t pending_told = 0;
  /// The one whose members know that others cannot read their memory.
  uint64_t disk_told = 0;
  std::set<uint64_t> overdue_told;
  std::optional<std::string> closed;
  std::vector<ViewEvent> events;
  Clock::time_point next_heartbeat;
};

void ViewServer::Impl::welcome(job::Joiner joiner) {
  const auto number = static_cast<uint64_t>(joiner.worker);
  const bool is_launcher = number == kLauncherNumber;
  if (!is_launcher && (!workers.contains(number) || workers[number].channel.is_open())) {
    admission.turn_away(std::move(joiner.channel),
                        "the launcher expects no such worker; start workers by lockstep run");
    return;
  }
  joiner.channel.send(encode(joiner.signer.sign(job::Welcome{interval(), options.launcher_timeout})));
  joiner.channel.trust(job::Seal(joiner.signer.key_to_member()), job::Seal(joiner.signer.key_to_coordinator()));
  if (is_launcher) {
    Launcher& launcher = launchers[++last_launcher];
    launcher.channel = std::move(joiner.channel);
    launcher.last_heard = Clock::now();
  } else {
    workers[number].channel = std::move(joiner.channel);
    workers[number].last_heard = Clock::now();
  }
}

void ViewServer::Impl::read_worker(uint64_t worker) {
  Channel& channel = workers[worker].channel;
  bool is_open = channel.receive();
  workers[worker].last_heard = Clock::now();
  try {
    while (const auto content = channel.next()) handle_worker(worker, decode_view_message(*content));
  } catch (const job::ProtocolError& error) {
    LOCKSTEP_LOG(Warn) << "a worker's connection to the launcher is closed: " << error.what();
    is_open = false;
  }
  // Its launcher notices the end of the process.
  if (!is_open) channel.close();
}

void ViewServer::Impl::handle_worker(uint64_t worker, const ViewMessage& message) {
  if (message.type == Type::Ask) {
    if (closed) {
      workers[worker].channel.send(encode(ViewMessage{.type = Type::Ended, .text = *closed}));
      return;
    }
    if (message.number >= static_cast<uint64_t>(AskReason::End)) {
      throw job::ProtocolError("it asks for an unknown reason");
    }
    const auto reason = static_cast<AskReason>(message.number);
    membership.ask(worker, message.address, message.other == 0 ? std::nullopt : std::optional(message.other),
                   Clock::now(), reason);
    if (reason == AskReason::Failure) {
      if (membership.is_in_view(worker)) tell_of_loss(worker, "another worker has left: " + message.text);
      report({.kind = ViewEvent::Kind::Failed, .worker = worker, .step = message.step, .text = message.text});
    } else if (message.step >= 0) {
      report({.kind = ViewEvent::Kind::Progress, .worker = worker, .step = message.step});
    }
  } else if (message.type == Type::Heartbeat) {
    return;
  } else if (message.type == Type::Resumed) {
    report({.kind = ViewEvent::Kind::Resumed, .worker = worker, .step = message.step, .text = message.text});
  } else {
    throw job::ProtocolError("it sent a message that workers do not send");
  }
}

void ViewServer::Impl::read_launcher(uint64_t number) {
  Launcher& launcher = launchers[number];
  const bool is_open = launcher.channel.receive();
  launcher.last_heard = Clock::now();
  try {
    while (const auto content = launcher.channel.next()) handle_launcher(number, decode_view_message(*content));
  } catch (const job::ProtocolError& error) {
    lose_launcher(number, error.what());
    return;
  }
  if (!is_open) lose_launcher(number, "its connection was closed");
}

void ViewServer::Impl::handle_launcher(uint64_t number, const ViewMessage& message) {
  switch (message.type) {
    case Type::Heartbeat:
      if (message.step >= 0) {
        report({.kind = ViewEvent::Kind::Progress, .launcher = number, .step = message.step});
      }
      break;
    case Type::Offer:
      report({.kind = ViewEvent::Kind::Offered, .launcher = number, .number = message.number, .text = message.text});
      break;
    case Type::Exited:
      if (launchers[number].workers.erase(message.number) == 0) {
        throw job::ProtocolError("it sent the number of a worker that is not its own");
      }
      report({.kind = ViewEvent::Kind::Exited,
              .worker = message.number,
              .launcher = number,
              .number = message.other,
              .step = message.step});
      break;
    default:
      throw job::ProtocolError("it sent a message that launchers do not send");
  }
}

void ViewServer::Impl::lose_launcher(uint64_t number, const std::string& why) {
  launchers.erase(number);
  report({.kind = ViewEvent::Kind::LauncherLost, .launcher = number, .text = why});
}

void ViewServer::Impl::send_view(const View& view) {
  const std::string content = encode(ViewMessage{.type = Type::NewView, .number = view.number, .text = encode(view)});
  for (const ViewMember& member : view.members) workers[member.worker].channel.send(content);
  report({.kind = ViewEvent::Kind::Issued, .view = view});
}

void ViewServer::Impl::tell_of_loss(uint64_t worker, const std::string& what_happened) {
  const View& view = membership.view();
  const std::string content =
      encode(ViewMessage{.type = Type::Lost, .number = view.number, .other = worker, .text = what_happened});
  for (const ViewMember& member : view.members) {
    const auto found = workers.find(member.worker);
    const bool is_concerned = found != workers.end() && member.worker != worker && !membership.asks(member.worker);
    if (is_concerned) found->second.channel.send(content);
  }
}

void ViewServer::Impl::tell_of_change(Clock::time_point now) {
  if (!membership.change_is_pending(now)) return;
  const View& view = membership.view();
  const bool needs_disk = membership.newcomers_need_disk();
  // Those who come between this message and the end of the view may need the disk, too.
  if (pending_told == view.number && (!needs_disk || disk_told == view.number)) return;
  pending_told = view.number;
  if (needs_disk) disk_told = view.number;
  const std::string content =
      encode(ViewMessage{.type = Type::Pending, .number = view.number, .other = needs_disk ? 1u : 0u});
  for (const ViewMember& member : view.members) {
    const auto found = workers.find(member.worker);
    if (found != workers.end()) found->second.channel.send(content);
  }
}

void ViewServer::Impl::advance() {
  if (closed) return;
  const auto now = Clock::now();
  if (const auto view = membership.issue()) send_view(*view);
  tell_of_change(now);
  for (const uint64_t worker : membership.overdue(now)) {
    if (overdue_told.insert(worker).second) report({.kind = ViewEvent::Kind::Overdue, .worker = worker});
  }
}

void ViewServer::Impl::watch() {
  const auto now = Clock::now();
  if (now < next_heartbeat) return;
  // Where this process itself was stopped, the silence of others means nothing.
  const bool was_stopped = now > next_heartbeat + options.worker_timeout / 2;
  next_heartbeat = now + interval();
  for (auto& [number, worker] : workers) {
    if (was_stopped) worker.last_heard = now;
    const bool is_silent = worker.channel.is_open() && now - worker.last_heard > options.worker_timeout;
    if (is_silent && overdue_told.insert(number).second) report({.kind = ViewEvent::Kind::Overdue, .worker = number});
  }
  std::vector<uint64_t> silent;
  for (auto& [number, launcher] : launchers) {
    launcher.channel.send(encode(ViewMessage{}));
    if (now - launcher.last_heard > options.launcher_timeout) silent.push_back(number);
  }
  for (const uint64_t number : silent) {
    lose_launcher(number, "it was silent for " + job::seconds(std::chrono::duration_cast<std::chrono::milliseconds>(
                                                     options.launcher_timeout)));
  }
}

Clock::time_point ViewServer::Impl::next_deadline() const {
  auto time = std::min(admission.next_deadline(), membership.next_deadline(Clock::now()));
  if (!launchers.empty() || !workers.empty()) time = std::min(time, next_heartbeat);
  return time;
}

ViewServer::ViewServer(const ViewServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}

ViewServer::~ViewServer() = default;

uint64_t ViewServer::add_worker(uint64_t launcher) {
  const uint64_t worker = ++impl_->last_worker;
  impl_->workers[worker];
  impl_->membership.start(worker, Clock::now(), launcher);
  return worker;
}

void ViewServer::end_worker(uint64_t worker, bool finished, const std::string& what_happened) {
  const bool was_in_view = impl_->membership.is_in_view(worker);
  impl_->membership.end(worker, finished, Clock::now());
  impl_->workers.erase(worker);
  if (was_in_view && !finished) impl_->tell_of_loss(worker, what_happened);
  impl_->advance();
}

void ViewServer::allow_fewer() {
  impl_->membership.allow_fewer();
  impl_->advance();
}

void ViewServer::close(const std::string& reason) {
  if (impl_->closed) return;
  impl_->closed = reason;
  for (auto& [worker, peer] : impl_->workers) {
    if (impl_->membership.asks(worker)) peer.channel.send(encode(ViewMessage{.type = Type::Ended, .text = reason}));
  }
}

void ViewServer::start_at(uint64_t launcher, uint64_t worker, int start, const std::string& name) {
  const auto found = impl_->launchers.find(launcher);
  if (found == impl_->launchers.end()) return;
  found->second.workers.insert(worker);
  found->second.channel.send(
      encode(ViewMessage{.type = Type::Start, .number = worker, .other = static_cast<uint64_t>(start), .text = name}));
}

void ViewServer::signal_at(uint64_t launcher, uint64_t worker, int signal) {
  const auto found = impl_->launchers.find(launcher);
  if (found == impl_->launchers.end()) return;
  found->second.channel.send(
      encode(ViewMessage{.type = Type::Signal, .number = worker, .other = static_cast<uint64_t>(signal)}));
}

void ViewServer::finish(int status) {
  for (auto& [number, launcher] : impl_->launchers) {
    launcher.channel.send(encode(ViewMessage{.type = Type::Finish, .number = static_cast<uint64_t>(status)}));
  }
  const auto deadline = Clock::now() + kFinishTime;
  while (!impl_->launchers.empty() && Clock::now() < deadline) {
    impl_->events.clear();  // nobody takes them, and `wait` returns while there are any
    wait(-1, 100ms);
  }
}

void ViewServer::wait(int descriptor, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  Impl& impl = *impl_;
  impl.advance();
  bool is_readable = false;
  while (!is_readable && impl.events.empty()) {
    job::PollSet set;
    const size_t place = set.add(descriptor);
    impl.admission.add_to(set);
    for (auto& [worker, peer] : impl.workers) peer.place = set.add(peer.channel);
    for (auto& [number, launcher] : impl.launchers) launcher.place = set.add(launcher.channel);
    set.wait_until(std::min(deadline, impl.next_deadline()));
    is_readable = set.is_readable(place);
    auto joiners = impl.admission.serve(set);
    for (auto& [worker, peer] : impl.workers) {
      if (peer.channel.is_open() && set.is_writable(peer.place)) peer.channel.flush();
      if (peer.channel.is_open() && set.is_readable(peer.place)) impl.read_worker(worker);
    }
    std::vector<uint64_t> ready;
    for (auto& [number, launcher] : impl.launchers) {
      if (set.is_writable(launcher.place)) launcher.channel.flush();
      if (set.is_readable(launcher.place)) ready.push_back(number);
    }
    for (const uint64_t number : ready) impl.read_launcher(number);
    // After all that was in the poll set.
    for (auto& joiner : joiners) impl.welcome(std::move(joiner));
    impl.watch();
    impl.advance();
    if (Clock::now() >= deadline) break;
  }
}

std::vector<ViewEvent> ViewServer::take_events() { return std::exchange(impl_->events, {}); }

const Membership& ViewServer::membership() const { return impl_->membership; }

}  // namespace lockstep::comm::views
