#include "lockstep/comm/transport_base.h"

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

[[noreturn]] void throw_failure(const std::string& message) {
  throw CollectiveError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
}

}  // namespace

TransportBase::TransportBase(const Job& job, std::string_view engine, int num_lanes)
    : engine_(engine), worker_(job.worker()), num_lanes_(num_lanes) {
  LOCKSTEP_CHECK_VALUE(num_lanes > 0, "[", engine, "] the number of lanes must be positive: lanes=", num_lanes);
  for (int worker = 0; worker < job.num_workers(); ++worker) names_.push_back(job.name(worker));
}

void TransportBase::exchange(int lane, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                             std::chrono::milliseconds timeout) {
  const Call call{lane, outgoing, incoming, timeout, Clock::now() + timeout};
  if (is_aborted()) throw_aborted(call);
  do_exchange(call);
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

void TransportBase::fail_late(const Call& call, const std::string& peers, const std::string& words) {
  const auto message = c10::str("[", engine_, "] all messages must come within the timeout: worker=", names_[worker_],
                                ", lane=", call.lane, ", timeout=", call.timeout.count(),
                                " ms, peers=", peers.empty() ? peers_of(call) : peers, "; ", engine_, " says: ", words,
                                "; see what the peers do, or raise LOCKSTEP_COLLECTIVE_TIMEOUT");
  abort(message);
  throw_failure(message);
}

void TransportBase::fail_with_peer(const Call& call, const std::string& peers, const std::string& words) {
  const auto message =
      c10::str("[", engine_, "] peers must stay until the end: worker=", names_[worker_], ", lane=", call.lane,
               ", peer=", peers.empty() ? peers_of(call) : peers, "; ", engine_, " says: ", words);
  abort(message);
  throw_failure(message);
}

void TransportBase::throw_aborted(const Call& call) {
  const std::lock_guard lock(reason_mutex_);
  throw_failure(c10::str("[", engine_, "] the transport was aborted: worker=", names_[worker_], ", lane=", call.lane,
                         "; reason: ", reason_));
}

std::string TransportBase::peers_of(const Call& call) const {
  std::vector<bool> part(names_.size());
  for (const auto& message : call.incoming) part[message.peer] = part[message.peer] || message.bytes > 0;
  for (const auto& message : call.outgoing) part[message.peer] = part[message.peer] || message.bytes > 0;
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
