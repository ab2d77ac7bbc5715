#include "lockstep/comm/job/admission.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
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
constexpr auto kListenTime = 3s;
constexpr auto kListenPause = 10ms;
constexpr size_t kMaxPendingPeers = 64;
constexpr size_t kRefusalsRemembered = 8;

bool is_local(const Endpoint& endpoint) {
  try {
    listen_at({endpoint.host, 0});
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

/// A failed job of this process closes its port shortly after its workers know of the failure.
Socket listen_when_free(const Endpoint& endpoint) {
  const auto deadline = std::chrono::steady_clock::now() + kListenTime;
  while (true) {
    try {
      return listen_at(endpoint);
    } catch (const std::system_error& error) {
      if (error.code().value() != EADDRINUSE || std::chrono::steady_clock::now() >= deadline) throw;
    }
    std::this_thread::sleep_for(kListenPause);
  }
}

}  // namespace

Admission::Admission(const JobOptions& options)
    : token_(options.token),
      num_workers_(options.addresses.size()),
      last_number_(num_workers_ - 1),
      max_pending_(kMaxPendingPeers + num_workers_) {
  // Nobody joins a job of one worker.
  if (num_workers_ > 1) listen(options, "worker 0");
}

Admission::Admission(const JobOptions& options, uint64_t num_workers, uint64_t last_number)
    : token_(options.token), num_workers_(num_workers), last_number_(last_number), max_pending_(4 * kMaxPendingPeers) {
  listen(options, "the launcher");
}

void Admission::listen(const JobOptions& options, const char* who) {
  Endpoint endpoint = parse_endpoint(options.addresses[0]);
  // Behind address translation, the user names the interface.
  if (!options.interface_address.empty() && !is_local(endpoint)) {
    endpoint.host = resolve_interface(options.interface_address);
  }
  try {
    listener_ = listen_when_free(endpoint);
  } catch (const std::system_error& error) {
    LOCKSTEP_CHECK_COLLECTIVE(error.code().value() != EADDRNOTAVAIL, "[join_job] ", who,
                              " must run where its address is: ", error.what(),
                              "; start it there, correct the address, or, where that address is translated to this ",
                              "machine's, name the interface to listen at as interface_address");
    LOCKSTEP_CHECK_COLLECTIVE(false, "[join_job] ", who, " cannot listen at its address: ", error.what(),
                              "; end the program that uses the port, or choose another port");
  } catch (const std::runtime_error& error) {
    LOCKSTEP_CHECK_COLLECTIVE(false, "[join_job] ", who, " cannot listen at its address: ", error.what());
  }
  address_ = local_address(listener_);
}

void Admission::close() {
  listener_.close();
  pending_.clear();
}

void Admission::add_to(PollSet& set) {
  const bool is_listening = listener_ && Clock::now() >= paused_until_;
  listener_place_ = set.add(is_listening ? listener_.descriptor() : -1);
  for (auto& peer : pending_) peer.place = set.add(peer.channel);
}

Clock::time_point Admission::next_deadline() const {
  auto time = Clock::time_point::max();
  if (paused_until_ > Clock::now()) time = paused_until_;
  for (const auto& peer : pending_) time = std::min(time, peer.deadline);
  return time;
}

std::vector<Joiner> Admission::serve(const PollSet& set) {
  std::vector<Joiner> joiners;
  const auto now = Clock::now();
  std::erase_if(pending_, [&](PendingPeer& peer) {
    if (set.is_writable(peer.place)) peer.channel.flush();
    if (set.is_readable(peer.place) && !read(peer, joiners)) return true;
    if (now < peer.deadline) return false;
    if (!peer.is_refused) {
      count_refusal(peer_address(peer.channel.socket()), "it did not finish its handshake in time");
    }
    return true;
  });
  if (set.is_readable(listener_place_)) accept_peers();
  return joiners;
}

void Admission::accept_peers() {
  try {
    while (Socket socket = accept_from(listener_)) {
      // New connections replace the oldest pending one.
      if (pending_.size() >= max_pending_) pending_.pop_front();
      pending_.push_back({Channel(std::move(socket)), Clock::now() + kHandshakeTime});
    }
  } catch (const std::system_error& error) {
    LOCKSTEP_LOG(Warn) << "the job's coordinator cannot accept connections for a while: " << error.what();
    if (!pending_.empty()) pending_.pop_front();
    paused_until_ = Clock::now() + kPauseWithoutDescriptors;
  }
}

bool Admission::read(PendingPeer& peer, std::vector<Joiner>& joiners) {
  if (peer.is_refused) return peer.channel.discard();
  const bool is_open = peer.channel.receive();
  try {
    while (!peer.is_refused && peer.channel.is_open()) {
      const auto content = peer.channel.next();
      if (!content) break;
      answer(peer, *content, joiners);
    }
  } catch (const ProtocolError& error) {
    count_refusal(peer_address(peer.channel.socket()), error.what());
    return false;
  }
  return is_open && peer.channel.is_open();
}

void Admission::answer(PendingPeer& peer, const std::string& content, std::vector<Joiner>& joiners) {
  if (peer.hello.empty()) {
    greet(peer, content);
  } else {
    verify(peer, content, joiners);
  }
}

void Admission::greet(PendingPeer& peer, const std::string& content) {
  const Hello hello = decode_hello(content);
  if (hello.version != kProtocolVersion) {
    refuse(peer, c10::str("it speaks version ", hello.version, " of the protocol, worker 0 speaks version ",
                          kProtocolVersion, "; run the same build of lockstep everywhere"));
    return;
  }
  peer.hello = content;
  peer.challenge = encode(Challenge{fresh_nonce()});
  peer.channel.send(peer.challenge);
}

void Admission::verify(PendingPeer& peer, const std::string& content, std::vector<Joiner>& joiners) {
  const Hello hello = decode_hello(peer.hello);
  const Proof proof = decode_proof(content);
  Signer signer(token_, peer.hello, peer.challenge);
  if (!signer.is_signed(proof)) {
    refuse(peer, token_.empty() ? "it has a token, worker 0 has none; give all workers the same one"
                                : "wrong token; give all workers the same one");
  } else if (hello.num_workers != num_workers_) {
    refuse(peer, c10::str("it expects ", hello.num_workers, " workers, worker 0 expects ", num_workers_,
                          "; start all workers with the same addresses"));
  } else if (hello.worker == 0 || hello.worker > last_number_) {
    refuse(peer, c10::str("there is no place for a worker ", hello.worker, " beside worker 0"));
  } else {
    joiners.push_back({std::move(peer.channel), static_cast<int>(hello.worker), proof.machine, std::move(signer)});
  }
}

void Admission::refuse(PendingPeer& peer, const std::string& reason) {
  count_refusal(peer_address(peer.channel.socket()), reason);
  peer.channel.send(turned_away(Refusal::Job, reason));
  // The peer closes the connection when it has read this.
  peer.channel.finish_sending();
  peer.is_refused = true;
}

void Admission::turn_away(Channel channel, const std::string& reason) {
  pending_.push_back({std::move(channel), Clock::now() + kHandshakeTime});
  refuse(pending_.back(), reason);
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
