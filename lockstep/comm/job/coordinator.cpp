#include "lockstep/comm/job/coordinator.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::comm::job {
namespace {

using namespace std::chrono_literals;

// How long sending the last messages may take where members do not read.
constexpr auto kEndTime = 1s;

std::string listed(const std::vector<std::string>& names, const std::string& one, const std::string& many) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text + (names.size() == 1 ? one : many);
}

}  // namespace

Coordinator::Coordinator(const JobOptions& options, Socket first_member)
    : options_(options),
      admission_(options),
      members_(options.addresses.size()),
      store_(options.values_limit),
      next_heartbeat_(Clock::now()),
      last_turn_(Clock::now()) {
  Member& first = member(0);
  first.channel = Channel(std::move(first_member));
  first.channel.trust({}, {});
  first.address = num_workers() == 1 ? parse_endpoint(options.addresses[0]).host : admission_.address();
  first.machine = machine_id();
  first.has_joined = true;
  thread_ = std::thread([this] { run(); });
}

Coordinator::~Coordinator() { thread_.join(); }

void Coordinator::run() {
  try {
    if (num_workers() == 1) complete();
    report_progress();
    while (!is_over_) take_turn();
    end();
  } catch (const std::exception& error) {
    LOCKSTEP_LOG(Error) << "the job's coordinator failed: " << error.what();
  }
  for (auto& one : members_) one.channel.close();
  admission_.close();
}

void Coordinator::take_turn() {
  PollSet set;
  admission_.add_to(set);
  for (auto& one : members_) one.place = set.add(one.channel);
  set.wait_until(next_deadline());
  const size_t num_refused = admission_.num_refused();
  for (auto& joiner : admission_.serve(set)) welcome(std::move(joiner));
  if (admission_.num_refused() != num_refused) report_progress();
  for (int worker = 0; worker < num_workers(); ++worker) {
    Member& one = member(worker);
    if (one.channel.is_open() && set.is_writable(one.place)) one.channel.flush();
    if (one.channel.is_open() && set.is_readable(one.place)) read(worker);
  }
  watch(Clock::now());
}

// The position of a new member in the poll set of this turn is that of a closed connection, which is never ready.
void Coordinator::welcome(Joiner joiner) {
  Member& one = member(joiner.worker);
  if (one.has_joined) {
    const std::string reason = c10::str("worker ", joiner.worker, " has already joined from ", one.address,
                                        "; give each process a number of its own");
    admission_.turn_away(std::move(joiner.channel), reason);
    return;
  }
  joiner.channel.send(encode(joiner.signer.sign(Welcome{options_.heartbeat_interval, options_.heartbeat_timeout})));
  joiner.channel.trust(Seal(joiner.signer.key_to_member()), Seal(joiner.signer.key_to_coordinator()));
  one.channel = std::move(joiner.channel);
  one.address = peer_address(one.channel.socket());
  one.machine = joiner.machine;
  one.last_heard = Clock::now();
  one.has_joined = true;
  const bool all = std::all_of(members_.begin(), members_.end(), [](const Member& each) { return each.has_joined; });
  if (all) complete();
  report_progress();
}

void Coordinator::complete() {
  const auto elsewhere = std::find_if(members_.begin(), members_.end(),
                                      [&](const Member& one) { return one.machine != members_[0].machine; });
  if (is_loopback(parse_endpoint(options_.addresses[0]).host) && elsewhere != members_.end()) {
    const int worker = static_cast<int>(elsewhere - members_.begin());
    send_to_all(turned_away(Refusal::Options,
                            c10::str("a loopback address cannot be reached from other hosts: addresses[0]=\"",
                                     options_.addresses[0], "\", ", name(worker), " runs on another machine; give ",
                                     "worker 0 an address of its host that the others can reach")));
    is_over_ = true;
    return;
  }
  is_complete_ = true;
  std::vector<RosterEntry> roster;
  for (const auto& one : members_) roster.push_back({one.address, one.machine});
  send_to_all(encode(Message{Message::Type::Complete, 0, "", encode(roster)}));
}

void Coordinator::report_progress() {
  if (!is_complete_) send_to_all(encode(Message{Message::Type::Progress, 0, "", progress()}));
}

std::string Coordinator::progress() const {
  std::vector<std::string> joined;
  std::vector<std::string> missing;
  for (int worker = 0; worker < num_workers(); ++worker) {
    (members_[static_cast<size_t>(worker)].has_joined ? joined : missing).push_back(name(worker));
  }
  const std::string refusals = admission_.refusals();
  return listed(joined, " has joined", " have joined") + ", " + listed(missing, " has not", " have not") +
         (refusals.empty() ? "" : "; " + refusals);
}

void Coordinator::read(int worker) {
  Channel& channel = member(worker).channel;
  const bool is_open = channel.receive();
  member(worker).last_heard = Clock::now();
  try {
    while (channel.is_open()) {
      const auto content = channel.next();
      if (!content) break;
      handle(worker, decode_message(*content));
    }
  } catch (const ProtocolError& error) {
    lose(worker, JobFailure::Kind::Died, c10::str("died: ", error.what()));
  }
  if (is_open || !channel.is_open()) return;
  const int code = channel.error();
  const std::string system = std::generic_category().message(code);
  if (code == ETIMEDOUT || code == EHOSTUNREACH || code == ENETUNREACH) {
    lose(worker, JobFailure::Kind::Silent, "cannot be reached any more: " + system);
    channel.close();
  } else {
    lose(worker, JobFailure::Kind::Died,
         "died: its connection was closed" + (code == 0 ? std::string() : " (" + system + ")"));
  }
}

void Coordinator::handle(int worker, Message message) {
  switch (message.type) {
    case Message::Type::Heartbeat:
      break;
    case Message::Type::Set:
      set(worker, std::move(message));
      break;
    case Message::Type::Get:
      get(worker, message);
      break;
    case Message::Type::Cancel:
      store_.forget(worker, message.number);
      break;
    case Message::Type::Drop:
      store_.drop(message.key);
      break;
    case Message::Type::Fail:
      if (message.key == kMismatch) {
        fail({JobFailure::Kind::Mismatch, -1, message.value});
        break;
      }
      fail({JobFailure::Kind::Failed, worker, name(worker) + " failed: " + message.value});
      break;
    case Message::Type::GaveUp:
      fail({JobFailure::Kind::Silent, 0, message.value});
      break;
    case Message::Type::Report:
      send_to_all(encode(Message{Message::Type::Reported, static_cast<uint64_t>(worker), "", message.value}));
      break;
    case Message::Type::Goodbye:
      depart(worker, message.value);
      break;
    default:
      throw ProtocolError("it sent a message that only the coordinator sends");
  }
}

void Coordinator::set(int worker, Message message) {
  if (store_.find(message.key) != nullptr) {
    send(worker, {Message::Type::Refused, message.number, "", "a key is set once"});
    return;
  }
  if (!store_.has_room_for(message.key, message.value)) {
    send(worker, {Message::Type::Refused, message.number, "",
                  c10::str("all values of a job take at most ", options_.values_limit, " bytes")});
    return;
  }
  const auto waiters = store_.set(message.key, std::move(message.value));
  send(worker, {Message::Type::Done, message.number});
  for (const auto& waiter : waiters) {
    send(waiter.worker, {Message::Type::Done, waiter.request, "", *store_.find(message.key)});
  }
}

void Coordinator::get(int worker, const Message& message) {
  if (message.key == kClockKey) {
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch());
    send(worker, {Message::Type::Done, message.number, "", std::to_string(time.count())});
  } else if (const std::string* value = store_.find(message.key)) {
    send(worker, {Message::Type::Done, message.number, "", *value});
  } else {
    store_.wait(message.key, {worker, message.number});
  }
}

void Coordinator::depart(int worker, const std::string& reason) {
  store_.forget(worker);
  if (is_complete_) {
    member(worker).channel.close();
    if (worker == 0) send_final_values();
    send_to_all(encode(Message{Message::Type::Left, static_cast<uint64_t>(worker)}));
  } else if (worker == 0) {
    member(worker).channel.close();
    send_to_all(turned_away(Refusal::Job, reason));
  } else {
    member(worker) = Member();
    report_progress();
  }
  if (worker == 0) is_over_ = true;
}

void Coordinator::send_final_values() {
  for (const auto& [key, value] : store_.values())
    send_to_all(encode(Message{Message::Type::FinalValue, 0, key, value}));
}

void Coordinator::lose(int worker, JobFailure::Kind kind, const std::string& what_happened) {
  store_.forget(worker);
  const std::string reason = name(worker) + " " + what_happened;
  if (is_complete_) {
    fail({kind, worker, reason});
    // A silent worker that comes back reads here that it was given up.
    member(worker).is_given_up = true;
    if (kind == JobFailure::Kind::Died) member(worker).channel.close();
  } else {
    member(worker) = Member();
    report_progress();
  }
  if (worker == 0) is_over_ = true;
}

void Coordinator::fail(const JobFailure& failure) {
  if (failure_) return;
  failure_ = failure;
  // Later joiners belong to the next job at this address.
  admission_.close();
  // The number of a mismatch is not read.
  const Message message{Message::Type::Failure, static_cast<uint64_t>(std::max(failure.worker, 0)),
                        std::to_string(static_cast<int>(failure.kind)), failure.reason};
  send_to_all(encode(message));
}

void Coordinator::watch(Clock::time_point now) {
  // Where this process itself was stopped, the silence of others means nothing.
  const bool was_away = now - last_turn_ > options_.heartbeat_timeout / 2;
  last_turn_ = now;
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + options_.heartbeat_interval;
    send_to_all(encode(Message{}));
  }
  for (int worker = 0; worker < num_workers(); ++worker) {
    Channel& channel = member(worker).channel;
    if (!channel.is_open() || !channel.is_overfull()) continue;
    const std::string reason = c10::str("does not read what it is sent: unsent=", channel.unsent_bytes(), " bytes");
    channel.close();
    lose(worker, JobFailure::Kind::Silent, reason);
  }
  for (int worker = 1; worker < num_workers(); ++worker) {
    Member& one = member(worker);
    if (!is_watched(one)) continue;
    if (was_away) one.last_heard = now;
    const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - one.last_heard);
    if (silence <= options_.heartbeat_timeout) continue;
    lose(worker, JobFailure::Kind::Silent,
         "was silent for " + seconds(silence) + ": it is stopped, or cut off the network");
  }
}

Clock::time_point Coordinator::next_deadline() const {
  auto time = std::min(next_heartbeat_, admission_.next_deadline());
  for (size_t i = 1; i < members_.size(); ++i) {
    if (is_watched(members_[i])) time = std::min(time, members_[i].last_heard + options_.heartbeat_timeout);
  }
  return time;
}

void Coordinator::end() {
  admission_.close();
  for (auto& one : members_) {
    if (!one.channel.has_unsent()) one.channel.finish_sending();
  }
  // Waits until all have read the last messages and closed: closing first could discard these messages.
  const auto deadline = Clock::now() + kEndTime;
  const auto is_open = [](const Member& one) { return one.channel.is_open(); };
  while (Clock::now() < deadline && std::any_of(members_.begin(), members_.end(), is_open)) {
    PollSet set;
    for (auto& one : members_) one.place = set.add(one.channel);
    set.wait_until(deadline);
    for (auto& one : members_) {
      if (!one.channel.is_open()) continue;
      if (set.is_writable(one.place)) {
        one.channel.flush();
        if (!one.channel.has_unsent()) one.channel.finish_sending();
      }
      if (set.is_readable(one.place) && !one.channel.receive()) one.channel.close();
    }
  }
}

void Coordinator::send(int worker, const Message& message) { member(worker).channel.send(encode(message)); }

void Coordinator::send_to_all(const std::string& content) {
  for (auto& one : members_) one.channel.send(content);
}

std::string Coordinator::name(int worker) const {
  return options_.worker_name(worker, members_[static_cast<size_t>(worker)].address);
}

}  // namespace lockstep::comm::job
