#include "lockstep/comm/engines/gloo/mesh.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines/gloo/device.h"

namespace lockstep::comm {
namespace {

/// A process announces the addresses of its ends of all pairs, each after its length; its own is empty.
std::string pack(const std::vector<std::string>& addresses) {
  std::string packed;
  for (const auto& address : addresses) {
    packed += static_cast<char>(address.size());
    packed += address;
  }
  return packed;
}

/// Returns the address at this position of a peer's announcement. CollectiveError where the announcement is shorter.
std::vector<char> unpack(const std::string& packed, int position, const std::string& peer) {
  std::string_view rest = packed;
  while (!rest.empty()) {
    const auto length = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    if (length > rest.size()) break;
    if (position-- == 0) return {rest.begin(), rest.begin() + length};
    rest.remove_prefix(length);
  }
  LOCKSTEP_THROW(CollectiveError, "[gloo] a worker must announce an address for every other one: peer=", peer,
                 ", bytes=", packed.size(), "; run the same build of lockstep everywhere");
}

static_assert(gloo::transport::Address::kMaxByteSize < 256, "the length of an address is packed into one byte");

/// Returns why workers cannot connect; empty while the job is well.
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

  // Closing the connections ends the waits below.
  const auto watch = job.on_change([this] { closeConnections(); });
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    std::string words;
    try {
      transportContext_->getPair(peer)->connect(unpack(announced[peer], rank, job.name(peer)));
      if (trouble(job).empty()) continue;
    } catch (const std::exception& error) {
      words = error.what();
    }
    const auto reason = trouble(job);
    LOCKSTEP_CHECK_COLLECTIVE(false, "[gloo] all workers must connect with each other: worker=", job.name(rank),
                              ", peer=", job.name(peer), ", timeout=", timeout.count(), " ms; ",
                              reason.empty() ? "Gloo says: " + words : reason);
  }
  // No worker may close its connections before all are connected.
  job.all_gather(name + "/gloo-connected", "", timeout);
}

}  // namespace lockstep::comm
