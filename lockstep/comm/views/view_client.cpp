#include "lockstep/comm/views/view_client.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/job/crypto.h"
#include "lockstep/comm/job/join_gate.h"
#include "lockstep/comm/job/joiner.h"
#include "lockstep/comm/views/view_message.h"

namespace lockstep::comm::views {
namespace {

using job::Clock;
using Type = ViewMessage::Type;

constexpr const char* kAskedToEnd = "this worker was asked to end";
/// How often it is asked whether this worker should stop.
constexpr std::chrono::milliseconds kStopInterval{50};

/// Returns host:port with a port that is free now and below those that the system gives to outgoing connections.
std::string free_address(const std::string& host) {
  constexpr int kAttempts = 1000;
  std::random_device random;
  std::uniform_int_distribution<int> draw(20'000, 32'767);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const job::Endpoint endpoint{host, static_cast<uint16_t>(draw(random))};
    try {
      job::listen_at(endpoint);
      return endpoint.text();
    } catch (const std::system_error& error) {
      if (error.code().value() != EADDRINUSE) throw;
    }
  }
  LOCKSTEP_THROW(CollectiveError, "[train_elastic] a worker needs a free port: host=", host,
                 ", from=20000, to=32767; end programs that hold them");
}

std::string hexadecimal(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

/// Who only knows the token of another view cannot join this one by mistake.
std::string view_token(const std::string& token, uint64_t number) {
  if (token.empty()) return {};
  return hexadecimal(job::hmac_sha256(token, "view " + std::to_string(number)));
}

}  // namespace

struct ViewClient::Impl {
  void run();
  void handle(const ViewMessage& message);
  void lose(const std::string& why);
  void send(const ViewMessage& message);
  void look_for_stop();

  uint64_t number = 0;
  std::string token;
  std::string host;

  std::chrono::milliseconds interval{};

  std::mutex mutex;
  Clock::time_point next_heartbeat = Clock::now();
  std::condition_variable changed;
  job::Channel channel;
  std::optional<View> answer;
  /// Why there will be no view.
  std::string ended;
  std::string loss;
  View view;
  bool is_stopped = false;
  std::function<bool()> stop;
  bool is_asked_to_end = false;
  std::atomic<bool> pending{false};
  std::atomic<bool> needs_disk{false};
  job::Socket wake;
  std::thread thread;
};

void ViewClient::Impl::run() {
  std::unique_lock lock(mutex);
  while (channel.is_open() && !is_stopped) {
    job::PollSet set;
    const size_t place = set.add(channel);
    set.add(wake.descriptor());
    const auto until = stop ? std::min(next_heartbeat, Clock::now() + kStopInterval) : next_heartbeat;
    lock.unlock();
    set.wait_until(until);
    lock.lock();
    look_for_stop();
    if (Clock::now() >= next_heartbeat) {
      next_heartbeat = Clock::now() + interval;
      channel.send(encode(ViewMessage{}));
    }
    eventfd_t ignored = 0;
    eventfd_read(wake.descriptor(), &ignored);
    if (set.is_writable(place)) channel.flush();
    if (!set.is_readable(place)) continue;
    const bool is_open = channel.receive();
    try {
      while (const auto content = channel.next()) handle(decode_view_message(*content));
      if (!is_open) lose("the connection to the launcher was closed");
    } catch (const job::ProtocolError& error) {
      lose(std::string("the launcher does not follow the protocol: ") + error.what());
    }
  }
}

void ViewClient::Impl::look_for_stop() {
  is_asked_to_end = stop && stop();
  if (!is_asked_to_end) return;
  close_joining(kAskedToEnd);
  changed.notify_all();
}

void ViewClient::Impl::handle(const ViewMessage& message) {
  switch (message.type) {
    case Type::NewView:
      // Here, and not in the thread that waits for the view: messages about it may follow at once.
      answer = view = decode_view(message.text);
      pending = false;
      needs_disk = false;
      loss.clear();
      open_joining();
      break;
    case Type::Pending:
      if (message.number != view.number) return;
      needs_disk = message.other != 0;  // before the other, which is looked at first
      pending = true;
      return;
    case Type::Lost:
      if (message.number != view.number) return;
      loss = message.text;
      close_joining(message.text);
      return;
    case Type::Ended:
      ended = message.text;
      break;
    case Type::Heartbeat:
      return;
    default:
      throw job::ProtocolError("it sent a message that is not for workers");
  }
  changed.notify_all();
}

void ViewClient::Impl::lose(const std::string& why) {
  channel.close();
  if (ended.empty()) ended = why;
  close_joining(why);
  changed.notify_all();
}

void ViewClient::Impl::send(const ViewMessage& message) {
  channel.send(encode(message));
  if (channel.has_unsent()) eventfd_write(wake.descriptor(), 1);
}

ViewClient::ViewClient(const std::string& address, uint64_t number, std::string token)
    : impl_(std::make_unique<Impl>()) {
  impl_->number = number;
  impl_->token = token;
  JobOptions options;
  options.addresses = {address};
  options.names = {"the launcher"};
  options.worker = static_cast<int>(number);
  options.token = std::move(token);
  options.interface_address = env::text("LOCKSTEP_INTERFACE");
  options.join_timeout = env::seconds("LOCKSTEP_JOIN_TIMEOUT");
  std::string last_error;
  job::Entrance entrance = job::enter_as_joiner(options, job::deadline_in(options.join_timeout), last_error,
                                                "its launcher must run there: lockstep run sets LOCKSTEP_VIEWS");
  impl_->channel = std::move(entrance.channel);
  impl_->host = entrance.local_address;
  impl_->interval = entrance.heartbeat_interval;
  impl_->wake = job::Socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

ViewClient::~ViewClient() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->is_stopped = true;
  }
  eventfd_write(impl_->wake.descriptor(), 1);
  impl_->thread.join();
  open_joining();
}

OwnView ViewClient::next(const Question& question) {
  {
    const std::lock_guard lock(impl_->mutex);
    LOCKSTEP_CHECK_COLLECTIVE(!impl_->is_asked_to_end, "[train_elastic] ", kAskedToEnd);
  }
  ViewMessage message{.type = Type::Ask,
                      .number = static_cast<uint64_t>(question.reason),
                      .step = question.step,
                      .address = free_address(impl_->host),
                      .text = question.failure};
  std::unique_lock lock(impl_->mutex);
  const auto& members = impl_->view.members;
  if (question.silent && *question.silent >= 0 && static_cast<size_t>(*question.silent) < members.size()) {
    message.other = members[static_cast<size_t>(*question.silent)].worker;
  }
  impl_->answer.reset();
  impl_->send(message);
  impl_->changed.wait(lock, [&] { return impl_->answer || !impl_->ended.empty() || impl_->is_asked_to_end; });
  LOCKSTEP_CHECK_COLLECTIVE(!impl_->is_asked_to_end, "[train_elastic] ", kAskedToEnd);
  LOCKSTEP_CHECK_COLLECTIVE(impl_->answer.has_value(), "[train_elastic] the job cannot go on: ", impl_->ended,
                            question.failure.empty() ? "" : "; the last failure here: " + question.failure);
  const View& view = *impl_->answer;
  const auto& all = view.members;
  const auto own = std::find_if(all.begin(), all.end(), [&](const ViewMember& m) { return m.worker == impl_->number; });
  LOCKSTEP_CHECK_COLLECTIVE(own != all.end(),
                            "[train_elastic] the launcher must issue views to their members: view=", view.number,
                            ", worker=", impl_->number);
  return {view, static_cast<int>(own - all.begin()), view_token(impl_->token, view.number)};
}

void ViewClient::watch(std::function<bool()> stop) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = std::move(stop);
    impl_->look_for_stop();
  }
  eventfd_write(impl_->wake.descriptor(), 1);
}

bool ViewClient::change_is_pending() const { return impl_->pending.load(std::memory_order_acquire); }

bool ViewClient::change_needs_disk() const { return impl_->needs_disk.load(std::memory_order_acquire); }

void ViewClient::resumed(int64_t step, const std::string& source) {
  const std::lock_guard lock(impl_->mutex);
  impl_->send({.type = Type::Resumed, .step = step, .text = source});
}

std::string ViewClient::loss() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->loss;
}

}  // namespace lockstep::comm::views
