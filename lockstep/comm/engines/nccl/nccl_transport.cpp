#include "lockstep/comm/engines/nccl/nccl_transport.h"

#include <functional>
#include <thread>
#include <utility>

#include "lockstep/base/backoff.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/engines/nccl/detached_calls.h"

namespace lockstep::comm {
namespace {

constexpr std::chrono::microseconds kSleep{20};
/// How long ending all lanes may take.
constexpr std::chrono::seconds kEndLimit{30};

}  // namespace

NcclTransport::NcclTransport(Job& job, const TransportOptions& options)
    : TransportBase(job, "nccl", options.num_lanes) {
  LOCKSTEP_CHECK_VALUE(static_cast<int>(options.devices.size()) == options.num_lanes,
                       "[nccl] each lane needs a GPU: lanes=", options.num_lanes, ", devices=", options.devices.size());
  for (int lane = 0; lane < options.num_lanes; ++lane) {
    const auto key = options.name + "/nccl-lane-" + std::to_string(lane);
    lanes_.push_back(std::make_shared<NcclLane>(job, key, options.devices[lane], options.timeout));
  }
}

/// Lanes are finalized, or aborted, which may hang.
NcclTransport::~NcclTransport() {
  std::vector<std::function<void()>> ends;
  for (auto& lane : lanes_) {
    ends.emplace_back([lane = std::move(lane), aborts = is_aborted()] {
      if (aborts) lane->abort();
    });
  }
  if (const size_t left = call_detached(std::move(ends), kEndLimit); left > 0) {
    LOCKSTEP_LOG(Error) << "[nccl] NCCL does not end its communicators: lanes=" << left;
  }
}

void NcclTransport::do_exchange(const Exchange& exchange) {
  auto& lane = *lanes_[exchange.lane];
  const CurrentDevice current(lane.device());
  const auto posted = post(exchange, lane);
  if (posted != ncclSuccess && posted != ncclInProgress) fail(exchange, lane, lane.words(posted));
  wait(exchange, lane, [&] { return lane.state() == ncclSuccess ? cudaSuccess : cudaErrorNotReady; });
  const auto marked = lane.mark();
  if (marked != cudaSuccess) fail(exchange, lane, cudaGetErrorString(marked));
  wait(exchange, lane, [&] { return lane.progress(); });
}

ncclResult_t NcclTransport::post(const Exchange& exchange, const NcclLane& lane) {
  auto code = ncclGroupStart();
  const auto keep = [&code](ncclResult_t next) {
    if (code == ncclSuccess || code == ncclInProgress) code = next;
  };
  for (const auto& message : exchange.incoming) {
    if (message.bytes == 0) continue;
    keep(ncclRecv(message.data, message.bytes, ncclInt8, message.peer, lane.communicator(), lane.stream()));
  }
  for (const auto& message : exchange.outgoing) {
    if (message.bytes == 0) continue;
    keep(ncclSend(message.data, message.bytes, ncclInt8, message.peer, lane.communicator(), lane.stream()));
  }
  keep(ncclGroupEnd());
  return code;
}

template <typename Progress>
void NcclTransport::wait(const Exchange& exchange, NcclLane& lane, Progress progress) {
  const auto is_done = [&] {
    const cudaError_t code = progress();
    if (code == cudaSuccess) return true;
    if (code != cudaErrorNotReady) fail(exchange, lane, cudaGetErrorString(code));
    const auto state = lane.state();
    if (state != ncclSuccess && state != ncclInProgress) fail(exchange, lane, lane.words(state));
    if (is_aborted()) fail(exchange, lane, "");
    return false;
  };
  detail::Patience patience;
  detail::spin_then_sleep(patience, is_done, [&] {
    if (exchange.is_late()) {
      lane.abort();
      fail_late(exchange, "", "nothing");
    }
    std::this_thread::sleep_for(kSleep);
    return true;
  });
}

void NcclTransport::fail(const Exchange& exchange, NcclLane& lane, const std::string& words) {
  lane.abort();
  if (is_aborted()) throw_aborted(exchange);
  fail_with_peer(exchange, "", words);
}

}  // namespace lockstep::comm
