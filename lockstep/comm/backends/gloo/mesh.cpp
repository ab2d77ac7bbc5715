#include "lockstep/comm/backends/gloo/mesh.h"

#include <algorithm>
#include <exception>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/gloo/device.h"

namespace lockstep::comm {
namespace {

/// A process announces the addresses of its ends of all pairs, its own one empty, each after its length.
std::string pack(const std::vector<std::string>& addresses) {
  std::string packed;
  for (const auto& address : addresses) {
    packed += static_cast<char>(address.size());
    packed += address;
  }
  return packed;
}

/// Returns the address at this position of what a peer has announced.
std::vector<char> unpack(const std::string& packed, int position) {
  size_t start = 0;
  while (start < packed.size()) {
    const auto length = static_cast<unsigned char>(packed[start++]);
    if (position-- == 0) return {packed.begin() + start, packed.begin() + start + length};
    start += length;
  }
  return {};
}

static_assert(gloo::transport::Address::kMaxByteSize < 256, "the length of an address is packed into one byte");

/// Why the job is in no state to connect; empty while it is.
std::string trouble(const Job& job) {
  if (const auto* failure = job.failure()) return failure->reason;
  for (int worker = 0; worker < job.num_workers(); ++worker) {
    if (job.has_left(worker)) return job.name(worker) + " has left";
  }
  return {};
}

}  // namespace

GlooMesh::GlooMesh(Job& job, const std::string& name, std::chrono::milliseconds timeout)
    : gloo::Context(job.worker(), job.num_workers()) {
  try {
    device_ = make_gloo_device(job.local_address());
    transportContext_ = device_->createContext(rank, size);
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    LOCKSTEP_CHECK_COLLECTIVE(false, "[gloo] the address must be one of this machine: address=", job.local_address(),
                              "; Gloo says: ", error.what());
  }
  // Gloo waits five times its timeout for a connection.
  transportContext_->setTimeout(std::max(timeout / 5, std::chrono::milliseconds(1)));
  connect(job, name, timeout);
}

void GlooMesh::connect(Job& job, const std::string& name, std::chrono::milliseconds timeout) {
  std::vector<std::string> own(size);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto address = transportContext_->createPair(peer)->address().bytes();
    own[peer].assign(address.begin(), address.end());
  }
  const auto announced = job.all_gather(name + "/gloo", pack(own), timeout);

  // A connection that is closed meanwhile ends its wait.
  const auto watch = job.on_change([this] { closeConnections(); });
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    std::string words;
    try {
      transportContext_->getPair(peer)->connect(unpack(announced[peer], rank));
      if (trouble(job).empty()) continue;
    } catch (const std::exception& error) {
      words = error.what();
    }
    const auto reason = trouble(job);
    LOCKSTEP_CHECK_COLLECTIVE(false, "[gloo] all workers must connect with each other: worker=", job.name(rank),
                              ", peer=", job.name(peer), ", timeout=", timeout.count(), " ms; ",
                              reason.empty() ? "Gloo says: " + words : reason);
  }
  // Who is connected may not close before the others are.
  job.all_gather(name + "/gloo-connected", "", timeout);
}

}  // namespace lockstep::comm
