#include "lockstep/comm/job/admission.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/job/message.h"

namespace lockstep::comm::job {
namespace {

using namespace std::chrono_literals;

constexpr auto kHandshakeTime = 5s;
constexpr auto kPauseWithoutDescriptors = 100ms;
constexpr auto kWarningInterval = 10s;
constexpr size_t kStrangersAtOnce = 64;
constexpr size_t kRefusalsRemembered = 8;

bool is_local(const Endpoint& endpoint) {
  try {
    listen_at({endpoint.host, 0});
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

}  // namespace

Admission::Admission(const JobOptions& options) : token_(options.token), num_workers_(options.addresses.size()) {
  // Nobody is to come to a job of one.
  if (num_workers_ > 1) listen(options);
}

void Admission::listen(const JobOptions& options) {
  Endpoint endpoint = parse_endpoint(options.addresses[0]);
  // Where worker 0's address is translated to this machine's, the user names the interface.
  if (!options.interface_address.empty() && !is_local(endpoint)) {
    endpoint.host = resolve_interface(options.interface_address);
  }
  try {
    listener_ = listen_at(endpoint);
  } catch (const std::system_error& error) {
    LOCKSTEP_CHECK_COLLECTIVE(error.code().value() != EADDRNOTAVAIL,
                              "[Job::join] worker 0 must run where its address is: ", error.what(),
                              "; start it there, correct addresses[0], or, where that address is translated to this ",
                              "machine's, name the interface to listen at as interface_address");
    LOCKSTEP_CHECK_COLLECTIVE(false, "[Job::join] worker 0 cannot listen at its address: ", error.what(),
                              "; end the program that uses the port, or choose another port for all workers");
  } catch (const std::runtime_error& error) {
    LOCKSTEP_CHECK_COLLECTIVE(false, "[Job::join] worker 0 cannot listen at its address: ", error.what());
  }
  address_ = local_address(listener_);
}

void Admission::close() {
  listener_.close();
  strangers_.clear();
}

void Admission::add_to(PollSet& set) {
  const bool is_listening = listener_ && Clock::now() >= paused_until_;
  listener_place_ = set.add(is_listening ? listener_.descriptor() : -1);
  for (auto& stranger : strangers_) stranger.place = set.add(stranger.channel);
}

Clock::time_point Admission::next_deadline() const {
  auto time = Clock::time_point::max();
  if (paused_until_ > Clock::now()) time = paused_until_;
  for (const auto& stranger : strangers_) time = std::min(time, stranger.deadline);
  return time;
}

std::vector<Joiner> Admission::serve(const PollSet& set) {
  std::vector<Joiner> joiners;
  const auto now = Clock::now();
  std::erase_if(strangers_, [&](Stranger& stranger) {
    if (set.is_writable(stranger.place)) stranger.channel.flush();
    if (set.is_readable(stranger.place) && !read(stranger, joiners)) return true;
    if (now < stranger.deadline) return false;
    if (!stranger.is_refused) {
      count_refusal(peer_address(stranger.channel.socket()), "it did not finish its handshake in time");
    }
    return true;
  });
  if (set.is_readable(listener_place_)) accept_strangers();
  return joiners;
}

void Admission::accept_strangers() {
  try {
    while (Socket socket = accept_from(listener_)) {
      // Who holds a place without using it loses it to who comes.
      if (strangers_.size() >= kStrangersAtOnce + num_workers_) strangers_.pop_front();
      strangers_.push_back({Channel(std::move(socket)), Clock::now() + kHandshakeTime});
    }
  } catch (const std::system_error& error) {
    LOCKSTEP_LOG(Warn) << "the job's coordinator cannot take connections for a while: " << error.what();
    if (!strangers_.empty()) strangers_.pop_front();
    paused_until_ = Clock::now() + kPauseWithoutDescriptors;
  }
}

bool Admission::read(Stranger& stranger, std::vector<Joiner>& joiners) {
  const bool is_open = stranger.channel.receive();
  if (stranger.is_refused) return is_open;
  try {
    while (!stranger.is_refused && stranger.channel.is_open()) {
      const auto content = stranger.channel.next();
      if (!content) break;
      answer(stranger, *content, joiners);
    }
  } catch (const ProtocolError& error) {
    count_refusal(peer_address(stranger.channel.socket()), error.what());
    return false;
  }
  return is_open && stranger.channel.is_open();
}

void Admission::answer(Stranger& stranger, const std::string& content, std::vector<Joiner>& joiners) {
  if (stranger.hello.empty()) {
    greet(stranger, content);
  } else {
    verify(stranger, content, joiners);
  }
}

void Admission::greet(Stranger& stranger, const std::string& content) {
  const Hello hello = decode_hello(content);
  if (hello.version != kProtocolVersion) {
    refuse(stranger, c10::str("it speaks version ", hello.version, " of the protocol, worker 0 speaks version ",
                              kProtocolVersion, "; run the same build of lockstep everywhere"));
    return;
  }
  stranger.hello = content;
  stranger.challenge = encode(Challenge{fresh_nonce()});
  stranger.channel.send(stranger.challenge);
}

void Admission::verify(Stranger& stranger, const std::string& content, std::vector<Joiner>& joiners) {
  const Hello hello = decode_hello(stranger.hello);
  const Proof proof = decode_proof(content);
  Signer signer(token_, stranger.hello, stranger.challenge);
  if (!signer.is_signed(proof)) {
    refuse(stranger, token_.empty() ? "it has a token, worker 0 has none; give all workers the same one"
                                    : "wrong token; give all workers the same one");
  } else if (hello.num_workers != num_workers_) {
    refuse(stranger, c10::str("it expects ", hello.num_workers, " workers, worker 0 expects ", num_workers_,
                              "; start all workers with the same addresses"));
  } else if (hello.worker == 0 || hello.worker >= num_workers_) {
    refuse(stranger, c10::str("there is no place for a worker ", hello.worker, " beside worker 0"));
  } else {
    joiners.push_back({std::move(stranger.channel), static_cast<int>(hello.worker), proof.machine, std::move(signer)});
  }
}

void Admission::refuse(Stranger& stranger, const std::string& reason) {
  count_refusal(peer_address(stranger.channel.socket()), reason);
  stranger.channel.send(turned_away(Refusal::kJob, reason));
  // It closes the connection when it has read this.
  stranger.channel.finish_sending();
  stranger.is_refused = true;
}

void Admission::turn_away(Channel channel, const std::string& reason) {
  strangers_.push_back({std::move(channel), Clock::now() + kHandshakeTime});
  refuse(strangers_.back(), reason);
}

void Admission::count_refusal(const std::string& address, const std::string& reason) {
  ++num_refused_;
  const std::string text = address + " (" + reason + ")";
  if (refused_.size() < kRefusalsRemembered || refused_.contains(text)) ++refused_[text];
  if (Clock::now() < next_warning_) return;
  next_warning_ = Clock::now() + kWarningInterval;
  LOCKSTEP_LOG(Warn) << "the job's coordinator turned away a connection from " << text << "; " << num_refused_
                     << " so far";
}

std::string Admission::refusals() const {
  if (num_refused_ == 0) return {};
  std::string text =
      num_refused_ == 1 ? "1 connection was refused: " : c10::str(num_refused_, " connections were refused: ");
  size_t named = 0;
  for (const auto& [who, count] : refused_) {
    if (named > 0) text += ", ";
    text += count == 1 ? who : c10::str(count, " from ", who);
    named += count;
  }
  return text + (named < num_refused_ ? ", ..." : "");
}

}  // namespace lockstep::comm::job
