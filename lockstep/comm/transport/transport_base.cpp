#include "lockstep/comm/transport/transport_base.h"

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

[[noreturn]] void throw_failure(const std::string& message) { LOCKSTEP_THROW(CollectiveError, message); }

}  // namespace

TransportBase::TransportBase(const Job& job, std::string_view engine, int num_lanes)
    : engine_(engine), worker_(job.worker()), num_lanes_(num_lanes) {
  LOCKSTEP_CHECK_VALUE(num_lanes > 0, "[", engine, "] the number of lanes must be positive: lanes=", num_lanes);
  for (int worker = 0; worker < job.num_workers(); ++worker) names_.push_back(job.name(worker));
}

void TransportBase::exchange(int lane, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                             std::chrono::milliseconds timeout) {
  const Exchange exchange{lane, outgoing, incoming, timeout, Clock::now() + timeout};
  if (is_aborted()) throw_aborted(exchange);
  do_exchange(exchange);
}

void TransportBase::abort(const std::string& reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (is_aborted()) return;
    reason_ = reason;
    aborted_.store(true, std::memory_order_release);
  }
  do_abort();
}

void TransportBase::fail_late(const Exchange& exchange, const std::string& peers, const std::string& words) {
  const auto message = c10::str("[", engine_, "] all messages must arrive within the timeout: worker=", names_[worker_],
                                ", lane=", exchange.lane, ", timeout=", exchange.timeout.count(),
                                " ms, peers=", peers.empty() ? peers_of(exchange) : peers, "; ", engine_,
                                " says: ", words, "; find out what the peers do, or raise LOCKSTEP_COLLECTIVE_TIMEOUT");
  abort(message);
  throw_failure(message);
}

void TransportBase::fail_with_peer(const Exchange& exchange, const std::string& peers, const std::string& words) {
  const auto message =
      c10::str("[", engine_, "] peers must stay connected: worker=", names_[worker_], ", lane=", exchange.lane,
               ", peer=", peers.empty() ? peers_of(exchange) : peers, "; ", engine_, " says: ", words);
  abort(message);
  throw_failure(message);
}

void TransportBase::throw_aborted(const Exchange& exchange) {
  const std::lock_guard lock(reason_mutex_);
  throw_failure(c10::str("[", engine_, "] the transport was aborted: worker=", names_[worker_],
                         ", lane=", exchange.lane, "; reason: ", reason_));
}

std::string TransportBase::peers_of(const Exchange& exchange) const {
  std::vector<bool> part(names_.size());
  for (const auto& message : exchange.incoming) part[message.peer] = part[message.peer] || message.bytes > 0;
  for (const auto& message : exchange.outgoing) part[message.peer] = part[message.peer] || message.bytes > 0;
  return names_of(part);
}

std::string TransportBase::names_of(const std::vector<bool>& peers) const {
  std::string names;
  for (size_t peer = 0; peer < names_.size(); ++peer) {
    if (peers[peer]) names += (names.empty() ? "" : ", ") + names_[peer];
  }
  return names;
}

}  // namespace lockstep::comm
