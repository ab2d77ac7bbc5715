#include "lockstep/comm/backends/gloo/gloo_transport.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

/// Lanes take the low bits of a slot, lengths the others.
constexpr int kLaneBits = 16;
constexpr uint64_t kProbeSlot = std::numeric_limits<uint64_t>::max();

uint64_t slot_of(int lane, size_t bytes) { return uint64_t{bytes} << kLaneBits | static_cast<uint64_t>(lane); }

size_t offset_of(const void* data) { return reinterpret_cast<uintptr_t>(data); }

/// Never before the deadline, so that a wait that ran out of time is known by the clock.
std::chrono::milliseconds until(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

}  // namespace

GlooTransport::GlooTransport(Job& job, const TransportOptions& options) : worker_(job.worker()) {
  LOCKSTEP_CHECK_VALUE(options.num_lanes > 0 && options.num_lanes < 1 << kLaneBits,
                       "[gloo] the number of lanes must be positive and below 65536: lanes=", options.num_lanes);
  for (int worker = 0; worker < job.num_workers(); ++worker) names_.push_back(job.name(worker));
  mesh_ = std::make_unique<GlooMesh>(job, options.name, options.timeout);
  for (int lane = 0; lane < options.num_lanes; ++lane) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->buffer = mesh_->createUnboundBuffer(nullptr, std::numeric_limits<size_t>::max());
  }
}

GlooTransport::~GlooTransport() {
  try {
    lanes_.clear();
    mesh_.reset();
  } catch (const std::exception&) {
    // Some of Gloo's destructors throw; the connections are closed all the same.
  }
}

bool GlooTransport::carry(gloo::transport::UnboundBuffer& buffer, int lane, std::span<const Outgoing> outgoing,
                          std::span<const Incoming> incoming, Clock::time_point deadline) {
  for (const auto& message : incoming) {
    if (message.bytes == 0) continue;
    buffer.recv(message.peer, slot_of(lane, message.bytes), offset_of(message.data), message.bytes);
  }
  for (const auto& message : outgoing) {
    if (message.bytes == 0) continue;
    buffer.send(message.peer, slot_of(lane, message.bytes), offset_of(message.data), message.bytes);
  }
  for (const auto& message : incoming) {
    if (message.bytes == 0) continue;
    if (aborted_ || !buffer.waitRecv(until(deadline))) return false;
  }
  for (const auto& message : outgoing) {
    if (message.bytes == 0) continue;
    if (aborted_ || !buffer.waitSend(until(deadline))) return false;
  }
  return true;
}

void GlooTransport::exchange(int lane, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                             std::chrono::milliseconds timeout) {
  auto* buffer = lanes_[lane]->buffer.get();
  if (aborted_) throw_aborted(lane);
  const auto deadline = Clock::now() + timeout;
  try {
    if (carry(*buffer, lane, outgoing, incoming, deadline)) return;
  } catch (const std::exception& error) {
    if (aborted_) throw_aborted(lane);
    const auto context = c10::str("lane=", lane, ", worker=", names_[worker_]);
    if (Clock::now() >= deadline) {
      fail(lane, c10::str("[gloo] all messages must come within the timeout: ", context, ", timeout=", timeout.count(),
                          " ms, waits for ", names_of(incoming, outgoing), "; Gloo says: ", error.what()));
    }
    fail(lane, c10::str("[gloo] the connection to a peer broke: ", context, ", peer=", broken_peers(*buffer),
                        "; Gloo says: ", error.what()));
  }
  throw_aborted(lane);
}

std::string GlooTransport::broken_peers(gloo::transport::UnboundBuffer& buffer) {
  std::string broken;
  for (int peer = 0; peer < num_workers(); ++peer) {
    if (peer == worker_) continue;
    try {
      // A pair that is broken refuses it. One that is not is closed in a moment.
      buffer.recv(peer, kProbeSlot, 0, 1);
    } catch (const std::exception&) {
      broken += (broken.empty() ? "" : ", ") + names_[peer];
    }
  }
  return broken.empty() ? "unknown" : broken;
}

std::string GlooTransport::names_of(std::span<const Incoming> incoming, std::span<const Outgoing> outgoing) const {
  std::vector<bool> part(names_.size());
  for (const auto& message : incoming) part[message.peer] = part[message.peer] || message.bytes > 0;
  for (const auto& message : outgoing) part[message.peer] = part[message.peer] || message.bytes > 0;
  std::string names;
  for (size_t peer = 0; peer < names_.size(); ++peer) {
    if (part[peer]) names += (names.empty() ? "" : ", ") + names_[peer];
  }
  return names;
}

void GlooTransport::fail(int lane, const std::string& message) {
  abort(message);
  const std::lock_guard lock(lanes_[lane]->mutex);
  lanes_[lane]->buffer.reset();
  LOCKSTEP_CHECK_COLLECTIVE(false, message);
  __builtin_unreachable();
}

void GlooTransport::throw_aborted(int lane) {
  {
    const std::lock_guard lock(lanes_[lane]->mutex);
    lanes_[lane]->buffer.reset();
  }
  const std::lock_guard lock(reason_mutex_);
  throw CollectiveError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str("[gloo] the transport was aborted: lane=", lane, ", worker=", names_[worker_], "; reason: ", reason_));
}

void GlooTransport::abort(const std::string& reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (aborted_) return;
    reason_ = reason;
    aborted_ = true;
  }
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
