#include "lockstep/comm/engines/gloo/gloo_transport.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines/gloo/broken_pipe.h"

namespace lockstep::comm {
namespace {

/// Lanes take the low bits of a slot, lengths the others.
constexpr int kLaneBits = 16;
/// What Gloo says where a wait of another lane ran out of time: it closes the connections that all lanes share.
constexpr std::string_view kTimeoutOfAnotherLane = "Application timeout caused pair closure";
constexpr uint64_t kProbeSlot = std::numeric_limits<uint64_t>::max();

uint64_t slot_of(int lane, size_t bytes) { return uint64_t{bytes} << kLaneBits | static_cast<uint64_t>(lane); }

size_t offset_of(const void* data) { return reinterpret_cast<uintptr_t>(data); }

/// Rounded up, so that a wait that ran out of time ends after the deadline.
std::chrono::milliseconds until(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

}  // namespace

GlooTransport::GlooTransport(Job& job, const TransportOptions& options)
    : TransportBase(job, "gloo", options.num_lanes) {
  LOCKSTEP_CHECK_VALUE(options.num_lanes < 1 << kLaneBits,
                       "[gloo] the number of lanes must be below 65536: lanes=", options.num_lanes);
  const BrokenPipesAreErrors guard;
  mesh_ = std::make_unique<GlooMesh>(job, options.name, options.timeout);
  for (int lane = 0; lane < options.num_lanes; ++lane) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->buffer = mesh_->createUnboundBuffer(nullptr, std::numeric_limits<size_t>::max());
  }
}

GlooTransport::~GlooTransport() {
  const BrokenPipesAreErrors guard;
  try {
    lanes_.clear();
    mesh_.reset();
  } catch (const std::exception&) {
    // Some of Gloo's destructors throw; the connections are closed all the same.
  }
}

void GlooTransport::do_exchange(const Exchange& exchange) {
  const BrokenPipesAreErrors guard;
  auto& lane = *lanes_[exchange.lane];
  std::string words;
  std::string broken;
  bool late = false;
  std::vector<int> awaited(static_cast<size_t>(num_workers()));
  try {
    if (carry(exchange, *lane.buffer, awaited)) return;
  } catch (const std::exception& error) {
    words = error.what();
    late = exchange.is_late() || words.find(kTimeoutOfAnotherLane) != std::string::npos;
    if (!late && !is_aborted()) broken = broken_peers(*lane.buffer);
  }
  {
    const std::lock_guard lock(lane.mutex);
    lane.buffer.reset();
  }
  if (is_aborted()) throw_aborted(exchange);
  if (late) fail_late(exchange, names_of({awaited.begin(), awaited.end()}), words);
  fail_with_peer(exchange, broken, words);
}

bool GlooTransport::carry(const Exchange& exchange, gloo::transport::UnboundBuffer& buffer, std::vector<int>& awaited) {
  for (const auto& message : exchange.incoming) {
    if (message.bytes == 0) continue;
    buffer.recv(message.peer, slot_of(exchange.lane, message.bytes), offset_of(message.data), message.bytes);
    ++awaited[static_cast<size_t>(message.peer)];
  }
  for (const auto& message : exchange.outgoing) {
    if (message.bytes == 0) continue;
    buffer.send(message.peer, slot_of(exchange.lane, message.bytes), offset_of(message.data), message.bytes);
  }
  for (const auto& message : exchange.incoming) {
    if (message.bytes == 0) continue;
    int peer = 0;
    if (is_aborted() || !buffer.waitRecv(&peer, until(exchange.deadline))) return false;
    --awaited[static_cast<size_t>(peer)];
  }
  for (const auto& message : exchange.outgoing) {
    if (message.bytes == 0) continue;
    if (is_aborted() || !buffer.waitSend(until(exchange.deadline))) return false;
  }
  return true;
}

std::string GlooTransport::broken_peers(gloo::transport::UnboundBuffer& buffer) {
  std::string broken;
  for (int peer = 0; peer < num_workers(); ++peer) {
    if (peer == worker()) continue;
    try {
      // A broken pair refuses it. Pairs that work are closed right after this.
      buffer.recv(peer, kProbeSlot, 0, 1);
    } catch (const std::exception&) {
      broken += (broken.empty() ? "" : ", ") + name_of(peer);
    }
  }
  return broken;
}

void GlooTransport::do_abort() {
  for (auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    if (!lane->buffer) continue;
    lane->buffer->abortWaitRecv();
    lane->buffer->abortWaitSend();
  }
  try {
    mesh_->closeConnections();
  } catch (const std::exception&) {
    // What could not be closed is closed by the destructor.
  }
}

}  // namespace lockstep::comm
