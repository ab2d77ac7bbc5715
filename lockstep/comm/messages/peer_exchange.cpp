#include "lockstep/comm/messages/peer_exchange.h"

#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/comm/diagnostics/worker_error.h"

namespace lockstep::comm {
namespace {

/// An engine often detects a dead peer before the job knows which worker died. How long to wait for the job.
constexpr std::chrono::milliseconds kJobDetectionTime{1000};

/// The description of a call, as it is sent.
struct Header {
  uint64_t fingerprint = 0;
  uint64_t run = 0;
  uint64_t sequence = 0;
  char text[232] = {};
};

void write_text(char (&to)[sizeof(Header::text)], const std::string& text) {
  const size_t length = std::min(text.size(), sizeof(to) - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

PeerExchange::PeerExchange(std::shared_ptr<MessageTeam> team, int local) : team_(std::move(team)), local_(local) {}

void PeerExchange::begin(const CollectiveCall& call, const CommunicationOptions& options) {
  const trace::Span waiting(trace::Phase::Waiting, "wait for workers");
  call_ = &call;
  limit_ = options.timeout().count() > 0 ? options.timeout() : team_->timeout;
  Header mine{.fingerprint = call.fingerprint(), .run = team_->run, .sequence = ++calls_};
  write_text(mine.text, call.describe());
  std::vector<Header> theirs(static_cast<size_t>(team_->num_workers()), mine);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int worker = 0; worker < team_->num_workers(); ++worker) {
    if (worker == team_->worker()) continue;
    outgoing.push_back({worker, &mine, sizeof(mine)});
    incoming.push_back({worker, &theirs[static_cast<size_t>(worker)], sizeof(Header)});
  }
  exchange(outgoing, incoming);
  for (int worker = 0; worker < team_->num_workers(); ++worker) {
    const Header& other = theirs[static_cast<size_t>(worker)];
    if (other.fingerprint == mine.fingerprint && other.run == mine.run && other.sequence == mine.sequence) continue;
    const Job& job = *team_->job;
    throw_difference({rank(), job.name(job.worker()), mine.text, mine.run},
                     {team_->rank_of(worker, local_), job.name(worker), other.text, other.run}, call, calls_,
                     team_->name);
  }
}

void PeerExchange::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  exchange_by(*team_->transport, outgoing, incoming);
}

void PeerExchange::exchange_on_devices(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  exchange_by(*team_->device_transport, outgoing, incoming);
}

void PeerExchange::exchange_by(Transport& transport, std::span<const Outgoing> outgoing,
                               std::span<const Incoming> incoming) {
  if (outgoing.empty() && incoming.empty()) return;
  for (const Outgoing& message : outgoing) team_->bytes_sent->fetch_add(message.bytes, std::memory_order_relaxed);
  try {
    transport.exchange(local_, outgoing, incoming, limit_);
  } catch (const c10::Error& error) {
    rethrow_as_worker_error(error);
  }
}

void PeerExchange::rethrow_as_worker_error(const c10::Error& error) const {
  const Job& job = *team_->job;
  for (std::chrono::milliseconds waited{0}; waited < kJobDetectionTime; waited += std::chrono::milliseconds(5)) {
    if (const JobFailure* failure = job.failure()) throw_worker_failure(*failure, *call_, rank(), team_->name);
    for (int worker = 0; worker < job.num_workers(); ++worker) {
      if (job.has_left(worker)) throw_worker_left(job, worker, *call_, rank(), team_->name);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw_engine_failure(error.what_without_backtrace(), *call_, rank(), team_->name);
}

}  // namespace lockstep::comm
