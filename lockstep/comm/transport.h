#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/api.h"

/// Bytes between the processes of a job, whatever engine carries them.
namespace lockstep::comm {

struct Outgoing {
  int peer = 0;
  const void* data = nullptr;
  size_t bytes = 0;
};

struct Incoming {
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
};

/// What an engine (Gloo, MPI, NCCL) must be able to do; all collectives between processes are made of it.
///
/// A *lane* is an independent channel between all processes: each local replica uses its own, from its own thread, so
/// that replicas never wait for each other here. Between two processes the messages of a lane arrive in the order in
/// which they were sent, and each matches one receive of the same length. Thread-safe for different lanes.
class LOCKSTEP_API Transport {
 public:
  virtual ~Transport() = default;

  /// The engine's name in the table of backends: "gloo", "mpi", "nccl".
  virtual std::string_view name() const = 0;
  virtual int worker() const = 0;
  virtual int num_workers() const = 0;
  virtual int num_lanes() const = 0;
  /// Whether the messages lie in the memory of a GPU, and not in that of the host.
  virtual bool moves_device_memory() const { return false; }

  /// Sends and receives all of these messages and returns when that is done: what was sent may be changed, what was
  /// received may be read. Messages of no bytes are left out on both sides. Peers never are this process itself.
  ///
  /// Throws CollectiveError, with the engine's own words and the peer where it is known, when a peer is gone, at the
  /// deadline, or after `abort`. After an error the transport is good for nothing but its destructor.
  virtual void exchange(int lane, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                        std::chrono::milliseconds timeout) = 0;

  /// Makes every exchange, now and later, fail with this reason. From any thread.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace lockstep::comm
