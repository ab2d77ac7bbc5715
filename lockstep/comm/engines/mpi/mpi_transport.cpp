#include "lockstep/comm/engines/mpi/mpi_transport.h"

#include <algorithm>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines/mpi/communicators.h"

namespace lockstep::comm {
namespace {

/// MPI counts in `int`: longer messages are split.
constexpr size_t kMostBytes = size_t{1} << 30;
/// How long a byte may take on a slow network before the thread sleeps between polls. MPI progresses only while it is
/// polled.
constexpr std::chrono::nanoseconds kPerByte{1};
constexpr std::chrono::microseconds kSleep{50};
/// How long to wait for messages of a worker that has left, which it may have sent before. On one machine they are in
/// memory by then.
constexpr std::chrono::milliseconds kLeftTime{1000};
constexpr std::chrono::milliseconds kLeftTimeOnOneMachine{50};
constexpr std::chrono::milliseconds kLeftCheck{20};
/// How long to wait for requests that were cancelled.
constexpr std::chrono::milliseconds kCancelTime{100};

/// Calls `piece(data, bytes)` for each part that fits a message of MPI.
template <typename Byte, typename Piece>
void cut(Byte* data, size_t bytes, Piece piece) {
  for (size_t start = 0; start < bytes; start += kMostBytes) {
    piece(data + start, static_cast<int>(std::min(kMostBytes, bytes - start)));
  }
}

}  // namespace

MpiTransport::MpiTransport(Job& job, const TransportOptions& options)
    : TransportBase(job, "mpi", options.num_lanes),
      left_time_(job.one_machine() ? kLeftTimeOnOneMachine : kLeftTime),
      lanes_(options.num_lanes),
      left_(job.num_workers()) {
  start_mpi();
  communicator_ = make_communicator(job, options.name, options.timeout);
}

MpiTransport::~MpiTransport() {
  if (is_aborted()) return;
  free_communicator(communicator_);
}

void MpiTransport::do_exchange(const Exchange& exchange) {
  const MpiCall call;
  auto& lane = lanes_[exchange.lane];
  post(exchange, lane);
  const auto sleepy = Clock::now() + kPerByte * lane.bytes;
  auto left_since = Clock::now();
  auto next_check = left_since + kLeftCheck;
  const auto is_done = [&] {
    if (test(exchange, lane)) return true;
    if (!is_aborted()) return false;
    cancel(lane);
    throw_aborted(exchange);
  };
  detail::spin_then_sleep(lane.patience, is_done, [&] {
    const auto now = Clock::now();
    if (now >= exchange.deadline) {
      const std::string late = names_of(late_peers(lane));
      cancel(lane);
      fail_late(exchange, late, "nothing");
    }
    if (now >= next_check) {
      next_check = now + kLeftCheck;
      const std::string left = left_peers(lane);
      if (left.empty()) left_since = now;
      if (now - left_since >= left_time_) {
        cancel(lane);
        fail_with_peer(exchange, left, "nothing; the peer has left the job");
      }
    }
    now < sleepy ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
    return true;
  });
}

void MpiTransport::post(const Exchange& exchange, Lane& lane) {
  lane.requests.clear();
  lane.peers.clear();
  lane.bytes = 0;
  const auto posted = [&](int code, MPI_Request request, int peer, int bytes) {
    if (code != MPI_SUCCESS) fail(exchange, lane, code, peer);
    lane.requests.push_back(request);
    lane.peers.push_back(peer);
    lane.bytes += bytes;
  };
  for (const auto& message : exchange.incoming) {
    cut(static_cast<char*>(message.data), message.bytes, [&](char* data, int bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Irecv(data, bytes, MPI_BYTE, message.peer, exchange.lane, communicator_, &request);
      posted(code, request, message.peer, bytes);
    });
  }
  for (const auto& message : exchange.outgoing) {
    cut(static_cast<const char*>(message.data), message.bytes, [&](const char* data, int bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Isend(data, bytes, MPI_BYTE, message.peer, exchange.lane, communicator_, &request);
      posted(code, request, message.peer, bytes);
    });
  }
  lane.statuses.resize(lane.requests.size());
}

bool MpiTransport::test(const Exchange& exchange, Lane& lane) {
  int done = 0;
  const int count = static_cast<int>(lane.requests.size());
  const int code = MPI_Testall(count, lane.requests.data(), &done, lane.statuses.data());
  if (code == MPI_SUCCESS) return done != 0;
  if (code != MPI_ERR_IN_STATUS) fail(exchange, lane, code, -1);
  for (int i = 0; i < count; ++i) {
    const int own = lane.statuses[i].MPI_ERROR;
    if (own != MPI_SUCCESS && own != MPI_ERR_PENDING) fail(exchange, lane, own, lane.peers[i]);
  }
  fail(exchange, lane, code, -1);
}

std::string MpiTransport::left_peers(Lane& lane) const {
  if (std::none_of(left_.begin(), left_.end(), [](const std::atomic<bool>& left) { return left.load(); })) return "";
  std::vector<bool> late = late_peers(lane);
  for (size_t peer = 0; peer < late.size(); ++peer) late[peer] = late[peer] && left_[peer];
  return names_of(late);
}

std::vector<bool> MpiTransport::late_peers(Lane& lane) const {
  std::vector<bool> late(static_cast<size_t>(num_workers()));
  for (size_t i = 0; i < lane.requests.size(); ++i) {
    int done = 0;
    const int code = MPI_Test(&lane.requests[i], &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || done == 0) late[static_cast<size_t>(lane.peers[i])] = true;
  }
  return late;
}

void MpiTransport::cancel(Lane& lane) {
  note_mpi_failure();
  for (auto& request : lane.requests) {
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  }
  const auto deadline = Clock::now() + kCancelTime;
  int done = 0;
  while (done == 0 && Clock::now() < deadline) {
    const int count = static_cast<int>(lane.requests.size());
    if (MPI_Testall(count, lane.requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
    std::this_thread::yield();
  }
}

void MpiTransport::fail(const Exchange& exchange, Lane& lane, int code, int peer) {
  cancel(lane);
  if (is_aborted()) throw_aborted(exchange);
  fail_with_peer(exchange, peer < 0 ? "" : name_of(peer), mpi_words(code));
}

}  // namespace lockstep::comm
