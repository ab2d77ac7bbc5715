#include "lockstep/comm/backends/mpi/mpi_transport.h"

#include <algorithm>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/mpi/communicators.h"

namespace lockstep::comm {
namespace {

/// MPI counts in `int`: longer messages are cut.
constexpr size_t kMostBytes = size_t{1} << 30;
/// How long a message may take on a slow network until its thread sleeps between its looks. MPI works only while
/// somebody looks.
constexpr std::chrono::nanoseconds kPerByte{1};
constexpr std::chrono::microseconds kSleep{50};
/// How long to wait for requests that were cancelled.
constexpr std::chrono::milliseconds kCancelTime{100};

/// Calls `piece(data, bytes)` for each part that MPI can carry.
template <typename Byte, typename Piece>
void cut(Byte* data, size_t bytes, Piece piece) {
  for (size_t start = 0; start < bytes; start += kMostBytes) {
    piece(data + start, static_cast<int>(std::min(kMostBytes, bytes - start)));
  }
}

}  // namespace

MpiTransport::MpiTransport(Job& job, const TransportOptions& options)
    : TransportBase(job, "mpi", options.num_lanes), lanes_(options.num_lanes) {
  start_mpi();
  communicator_ = make_communicator(job, options.name, options.timeout);
}

MpiTransport::~MpiTransport() {
  if (is_aborted()) return;
  free_communicator(communicator_);
}

void MpiTransport::do_exchange(const Call& call) {
  auto& lane = lanes_[call.lane];
  post(call, lane);
  detail::Backoff backoff(lane.patience);
  const auto sleepy = Clock::now() + kPerByte * lane.bytes;
  while (!test(call, lane)) {
    if (is_aborted()) {
      cancel(lane);
      throw_aborted(call);
    }
    if (backoff.pause()) continue;
    const auto now = Clock::now();
    if (now >= call.deadline) {
      const std::string late = late_peers(lane);
      cancel(lane);
      fail_late(call, late, "nothing");
    }
    now < sleepy ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
  }
}

void MpiTransport::post(const Call& call, Lane& lane) {
  lane.requests.clear();
  lane.peers.clear();
  lane.bytes = 0;
  const auto posted = [&](int code, MPI_Request request, int peer, int bytes) {
    if (code != MPI_SUCCESS) fail(call, lane, code, peer);
    lane.requests.push_back(request);
    lane.peers.push_back(peer);
    lane.bytes += bytes;
  };
  for (const auto& message : call.incoming) {
    cut(static_cast<char*>(message.data), message.bytes, [&](char* data, int bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Irecv(data, bytes, MPI_BYTE, message.peer, call.lane, communicator_, &request);
      posted(code, request, message.peer, bytes);
    });
  }
  for (const auto& message : call.outgoing) {
    cut(static_cast<const char*>(message.data), message.bytes, [&](const char* data, int bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Isend(data, bytes, MPI_BYTE, message.peer, call.lane, communicator_, &request);
      posted(code, request, message.peer, bytes);
    });
  }
  lane.statuses.resize(lane.requests.size());
}

bool MpiTransport::test(const Call& call, Lane& lane) {
  int done = 0;
  const int count = static_cast<int>(lane.requests.size());
  const int code = MPI_Testall(count, lane.requests.data(), &done, lane.statuses.data());
  if (code == MPI_SUCCESS) return done != 0;
  if (code != MPI_ERR_IN_STATUS) fail(call, lane, code, -1);
  for (int i = 0; i < count; ++i) {
    const int own = lane.statuses[i].MPI_ERROR;
    if (own != MPI_SUCCESS && own != MPI_ERR_PENDING) fail(call, lane, own, lane.peers[i]);
  }
  fail(call, lane, code, -1);
}

std::string MpiTransport::late_peers(Lane& lane) const {
  std::vector<bool> late(static_cast<size_t>(num_workers()));
  for (size_t i = 0; i < lane.requests.size(); ++i) {
    int done = 0;
    const int code = MPI_Test(&lane.requests[i], &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || done == 0) late[static_cast<size_t>(lane.peers[i])] = true;
  }
  return names_of(late);
}

void MpiTransport::cancel(Lane& lane) {
  leave_mpi_unfinished();
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

void MpiTransport::fail(const Call& call, Lane& lane, int code, int peer) {
  cancel(lane);
  if (is_aborted()) throw_aborted(call);
  fail_with_peer(call, peer < 0 ? "" : name_of(peer), mpi_words(code));
}

}  // namespace lockstep::comm
