#include "lockstep/comm/job/member.h"

#include <algorithm>
#include <cerrno>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/job/join_gate.h"
#include "lockstep/comm/job/join_reminder.h"

namespace lockstep::comm::job {
namespace {

using namespace std::chrono_literals;

// How long leaving may take.
constexpr auto kLeaveTime = 1s;

JobFailure::Kind failure_kind(const std::string& text) {
  for (const auto kind :
       {JobFailure::Kind::Died, JobFailure::Kind::Silent, JobFailure::Kind::Failed, JobFailure::Kind::Mismatch}) {
    if (text == std::to_string(static_cast<int>(kind))) return kind;
  }
  throw ProtocolError("it sent an unknown kind of failure");
}

}  // namespace

Member::Member(const JobOptions& options, Entrance entrance)
    : options_(options),
      process_(getpid()),
      coordinator_(std::move(entrance.coordinator)),
      heartbeat_interval_(entrance.heartbeat_interval),
      heartbeat_timeout_(entrance.heartbeat_timeout),
      channel_(std::move(entrance.channel)),
      last_heard_(Clock::now()),
      last_turn_(last_heard_),
      next_heartbeat_(last_heard_),
      local_address_(std::move(entrance.local_address)),
      left_(options.addresses.size()),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (int i = 0; i < num_workers(); ++i) names_.push_back(options.worker_name(i));
  thread_ = std::thread([this] { run(); });
}

Member::~Member() { leave(); }

void Member::leave(int status) {
  if (getpid() != process_) return;
  const std::lock_guard leaving(leave_mutex_);
  if (!thread_.joinable()) return;
  if (status != 0) fail("its process ended with exit status " + std::to_string(status));
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = true;
    leave_deadline_ = Clock::now() + kLeaveTime;
    send({Message::Type::Goodbye, 0, "", leave_reason_});
  }
  wake();
  thread_.join();
  coordinator_.reset();
}

void Member::run() {
  std::unique_lock lock(mutex_);
  // Messages that arrived together with the end of the handshake.
  handle_received();
  while (channel_.is_open() && !(is_leaving_ && Clock::now() >= leave_deadline_)) {
    PollSet set;
    const size_t place = set.add(channel_);
    set.add(wake_.descriptor());
    auto deadline = next_heartbeat_;
    if (is_leaving_) deadline = std::min(deadline, leave_deadline_);
    lock.unlock();
    set.wait_until(deadline);
    lock.lock();
    eventfd_t ignored = 0;
    eventfd_read(wake_.descriptor(), &ignored);
    if (set.is_writable(place)) channel_.flush();
    if (set.is_readable(place)) read();
    watch(Clock::now());
  }
  channel_.close();
  changed_.notify_all();
}

void Member::read() {
  const bool is_open = channel_.receive();
  last_heard_ = Clock::now();
  handle_received();
  if (is_open || !channel_.is_open()) return;
  const int code = channel_.error();
  const std::string system = std::generic_category().message(code);
  if (code == ETIMEDOUT || code == EHOSTUNREACH || code == ENETUNREACH) {
    lose_coordinator(JobFailure::Kind::Silent, "cannot be reached any more: " + system);
  } else {
    lose_coordinator(JobFailure::Kind::Died,
                     "died: its connection was closed" + (code == 0 ? std::string() : " (" + system + ")"));
  }
  channel_.close();
}

void Member::handle_received() {
  try {
    while (channel_.is_open()) {
      const auto content = channel_.next();
      if (!content) break;
      handle(decode_message(*content));
    }
  } catch (const ProtocolError& error) {
    lose_coordinator(JobFailure::Kind::Died, c10::str("died: ", error.what()));
    channel_.close();
  }
}

void Member::handle(const Message& message) {
  switch (message.type) {
    case Message::Type::Heartbeat:
      return;
    case Message::Type::Done:
    case Message::Type::Refused: {
      const auto request = requests_.find(message.number);
      if (request == requests_.end()) return;
      request->second->is_answered = true;
      request->second->answer = message;
      break;
    }
    case Message::Type::Progress:
      progress_ = message.value;
      break;
    case Message::Type::Complete:
      complete(message);
      break;
    case Message::Type::TurnedAway:
      turned_away_ = std::make_unique<Message>(message);
      channel_.close();
      break;
    case Message::Type::Failure: {
      if (message.number >= left_.size()) throw ProtocolError("it sent a number out of range");
      const auto kind = failure_kind(message.key);
      const int cause = kind == JobFailure::Kind::Mismatch ? -1 : static_cast<int>(message.number);
      const bool is_own_silence = cause == worker() && kind == JobFailure::Kind::Silent;
      set_failure({kind, cause, (is_own_silence ? "this worker was given up by the job: " : "") + message.value});
      break;
    }
    case Message::Type::Reported:
      if (message.number >= left_.size()) throw ProtocolError("it sent a number out of range");
      reports_[static_cast<int>(message.number)] = message.value;
      return;
    case Message::Type::Left:
      if (message.number >= left_.size()) throw ProtocolError("it sent a number out of range");
      left_[message.number] = true;
      has_anybody_left_ = true;
      if (message.number == 0) channel_.close();
      callbacks_.call_all();
      break;
    case Message::Type::FinalValue:
      final_values_[message.key] = message.value;
      return;
    default:
      throw ProtocolError("it sent a message that only members send");
  }
  changed_.notify_all();
}

void Member::complete(const Message& message) {
  const auto roster = decode_roster(message.value);
  if (roster.size() != left_.size()) throw ProtocolError("it sent a roster of another size");
  for (int i = 0; i < num_workers(); ++i) {
    const auto& entry = roster[static_cast<size_t>(i)];
    names_[static_cast<size_t>(i)] = options_.worker_name(i, entry.address);
    one_machine_ = one_machine_ && entry.machine == roster[0].machine;
  }
  if (local_address_.empty()) local_address_ = roster[0].address;
  is_complete_ = true;
}

void Member::lose_coordinator(JobFailure::Kind kind, const std::string& what_happened) {
  if (is_leaving_ || left_[0]) return;
  if (is_complete_) set_failure({kind, 0, names_[0] + " " + what_happened});
}

void Member::set_failure(JobFailure failure) {
  if (first_failure_) return;
  first_failure_ = std::make_unique<JobFailure>(std::move(failure));
  failure_.store(first_failure_.get(), std::memory_order_release);
  changed_.notify_all();
  callbacks_.call_all();
}

void Member::watch(Clock::time_point now) {
  // Where this process itself was stopped, the silence of the coordinator means nothing.
  if (now - last_turn_ > heartbeat_timeout_ / 2) last_heard_ = now;
  last_turn_ = now;
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + heartbeat_interval_;
    send({});
  }
  const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_heard_);
  if (worker() == 0 || is_leaving_ || first_failure_ || silence <= heartbeat_timeout_) return;
  lose_coordinator(JobFailure::Kind::Silent,
                   "was silent for " + seconds(silence) + ": it is stopped, or cut off the network");
  // The connection stays open: worker 0 reads this if it comes back.
  if (first_failure_) {
    send({Message::Type::GaveUp, 0, "", first_failure_->reason});
  } else {
    channel_.close();
    changed_.notify_all();
  }
}

void Member::send(const Message& message) {
  channel_.send(encode(message));
  if (channel_.has_unsent()) wake();
}

void Member::wake() { eventfd_write(wake_.descriptor(), 1); }

bool Member::wait_for_all(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const auto is_decided = [&] { return is_complete_ || turned_away_ || !channel_.is_open(); };
  JoinReminder reminder(options_, deadline);
  while (!changed_.wait_until(lock, std::min(reminder.next(), Clock::now() + kGateInterval), is_decided) &&
         Clock::now() < deadline) {
    leave_reason_ = joining_closed();
    check_joining_open();
    reminder.remind("not all workers have joined: " + progress_);
  }
  if (is_complete_) return true;
  if (turned_away_) throw_turned_away(options_, turned_away_->number, turned_away_->value);
  if (!channel_.is_open()) return false;
  leave_reason_ = c10::str("not all workers have joined within ", seconds(options_.join_timeout), ": ", progress_);
  LOCKSTEP_THROW(CollectiveError, "[join_job] ", leave_reason_, "; the coordinator's address is ",
                 options_.addresses[0]);
}

const std::string& Member::name(int worker) const {
  LOCKSTEP_CHECK_INDEX(worker >= 0 && worker < num_workers(),
                       "[Job::name] worker must be one of the job's: worker=", worker, ", num_workers=", num_workers());
  return names_[static_cast<size_t>(worker)];
}

bool Member::has_left(int worker) const {
  LOCKSTEP_CHECK_INDEX(worker >= 0 && worker < num_workers(),
                       "[Job::has_left] worker must be one of the job's: worker=", worker,
                       ", num_workers=", num_workers());
  return left_[static_cast<size_t>(worker)].load(std::memory_order_acquire);
}

void Member::check_process(const char* operation, const std::string& key) const {
  LOCKSTEP_CHECK_COLLECTIVE(getpid() == process_, "[", operation, "] a forked process is no member of the job: key=\"",
                            key, "\"; use the job in the process that joined it");
}

void Member::check_usable(const char* operation, const std::string& key) const {
  const JobFailure* failed = failure();
  LOCKSTEP_CHECK_COLLECTIVE(failed == nullptr, "[", operation, "] the job has failed: ", failed->reason, ", key=\"",
                            key, "\"");
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK_COLLECTIVE(channel_.is_open(), "[", operation, "] ", names_[0],
                            " has left, and the job's values with it: key=\"", key, "\"");
}

std::optional<std::string> Member::final_value(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = final_values_.find(key);
  return found == final_values_.end() || failure() != nullptr ? std::nullopt : std::optional(found->second);
}

bool Member::ask(Message message, Clock::time_point deadline, Message& answer) {
  std::unique_lock lock(mutex_);
  Request request;
  message.number = ++last_request_;
  requests_[message.number] = &request;
  send(message);
  changed_.wait_until(lock, deadline, [&] { return is_cut_off() || request.is_answered; });
  requests_.erase(message.number);
  if (!request.is_answered) send({Message::Type::Cancel, message.number});
  answer = std::move(request.answer);
  return request.is_answered;
}

void Member::set(const std::string& key, const std::string& value) {
  constexpr size_t kOverhead = 1024;
  LOCKSTEP_CHECK_VALUE(key.size() + value.size() + kOverhead <= kMemberLimit,
                       "[Job::set] key and value must be small: key=\"", key.substr(0, 100),
                       "\", bytes=", key.size() + value.size(), ", limit=", kMemberLimit - kOverhead);
  check_process("Job::set", key);
  Message answer;
  // Heartbeats detect a coordinator that does not answer.
  if (!ask({Message::Type::Set, 0, key, value}, deadline_in(std::chrono::hours(24 * 365)), answer)) {
    check_usable("Job::set", key);
  }
  LOCKSTEP_CHECK_VALUE(answer.type != Message::Type::Refused, "[Job::set] ", answer.value, ": key=\"", key,
                       "\", bytes=", value.size());
}

void Member::drop(const std::string& key) {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (!is_cut_off()) send({Message::Type::Drop, 0, key});
}

std::string Member::get(const std::string& key, std::chrono::milliseconds timeout) {
  check_process("Job::get", key);
  Message answer;
  if (ask({Message::Type::Get, 0, key}, deadline_in(timeout), answer)) return std::move(answer.value);
  if (auto value = final_value(key)) return *value;
  check_usable("Job::get", key);
  std::string who = "nobody has set the key in time";
  for (int i = 0; i < num_workers(); ++i) {
    if (key.ends_with("/" + std::to_string(i))) who = name(i) + " has not set the key in time";
  }
  LOCKSTEP_THROW(CollectiveError, "[Job::get] ", who, ": key=\"", key, "\", timeout=", seconds(timeout));
}

void Member::fail(const std::string& reason) {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (first_failure_) return;
  send({Message::Type::Fail, 0, "", reason});
  set_failure({JobFailure::Kind::Failed, worker(), names_[static_cast<size_t>(worker())] + " failed: " + reason});
}

void Member::fail_by_mismatch(const std::string& reason) {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (first_failure_) return;
  send({Message::Type::Fail, 0, std::string(kMismatch), reason});
  set_failure({JobFailure::Kind::Mismatch, -1, reason});
}

void Member::report(const std::string& report) {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (!is_cut_off()) send({Message::Type::Report, 0, "", report});
}

std::string Member::last_report(int worker) const {
  const std::lock_guard lock(mutex_);
  const auto found = reports_.find(worker);
  return found == reports_.end() ? "" : found->second;
}

std::shared_ptr<void> Member::on_change(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  return callbacks_.add(std::move(callback), failure() != nullptr || has_anybody_left_);
}

}  // namespace lockstep::comm::job
