#include "lockstep/comm/backends/nccl/nccl_transport.h"

#include <thread>

#include "lockstep/base/backoff.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr std::chrono::microseconds kSleep{20};

}  // namespace

NcclTransport::NcclTransport(Job& job, const TransportOptions& options)
    : TransportBase(job, "nccl", options.num_lanes) {
  LOCKSTEP_CHECK_VALUE(static_cast<int>(options.devices.size()) == options.num_lanes,
                       "[nccl] each lane needs a GPU: lanes=", options.num_lanes, ", devices=", options.devices.size());
  for (int lane = 0; lane < options.num_lanes; ++lane) {
    const auto key = options.name + "/nccl-lane-" + std::to_string(lane);
    lanes_.push_back(std::make_unique<NcclLane>(job, key, options.devices[lane], options.timeout));
  }
}

NcclTransport::~NcclTransport() {
  if (!is_aborted()) return;
  for (auto& lane : lanes_) lane->abort();
}

void NcclTransport::do_exchange(const Call& call) {
  auto& lane = *lanes_[call.lane];
  const CurrentDevice current(lane.device());
  const auto posted = post(call, lane);
  if (posted != ncclSuccess && posted != ncclInProgress) fail(call, lane, lane.words(posted));
  wait(call, lane, [&] { return lane.state() == ncclSuccess ? cudaSuccess : cudaErrorNotReady; });
  const auto marked = lane.mark();
  if (marked != cudaSuccess) fail(call, lane, cudaGetErrorString(marked));
  wait(call, lane, [&] { return lane.progress(); });
}

ncclResult_t NcclTransport::post(const Call& call, const NcclLane& lane) {
  auto code = ncclGroupStart();
  const auto keep = [&code](ncclResult_t next) {
    if (code == ncclSuccess || code == ncclInProgress) code = next;
  };
  for (const auto& message : call.incoming) {
    if (message.bytes == 0) continue;
    keep(ncclRecv(message.data, message.bytes, ncclInt8, message.peer, lane.communicator(), lane.stream()));
  }
  for (const auto& message : call.outgoing) {
    if (message.bytes == 0) continue;
    keep(ncclSend(message.data, message.bytes, ncclInt8, message.peer, lane.communicator(), lane.stream()));
  }
  keep(ncclGroupEnd());
  return code;
}

template <typename Progress>
void NcclTransport::wait(const Call& call, NcclLane& lane, Progress progress) {
  detail::Patience patience;
  detail::Backoff backoff(patience);
  for (auto code = progress(); code != cudaSuccess; code = progress()) {
    if (code != cudaErrorNotReady) fail(call, lane, cudaGetErrorString(code));
    const auto state = lane.state();
    if (state != ncclSuccess && state != ncclInProgress) fail(call, lane, lane.words(state));
    if (is_aborted()) fail(call, lane, "");
    if (backoff.pause()) continue;
    if (call.is_late()) {
      lane.abort();
      fail_late(call, "", "nothing");
    }
    std::this_thread::sleep_for(kSleep);
  }
}

void NcclTransport::fail(const Call& call, NcclLane& lane, const std::string& words) {
  lane.abort();
  if (is_aborted()) throw_aborted(call);
  fail_with_peer(call, "", words);
}

}  // namespace lockstep::comm
