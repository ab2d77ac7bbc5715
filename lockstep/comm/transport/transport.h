#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/api.h"

/// Messages between the processes of a job, for all engines.
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

/// What an engine (Gloo, MPI, NCCL) implements; all collectives between processes are built on it.
///
/// A *lane* is an independent channel between all processes: each local replica uses its own, from its own thread, so
/// replicas never block each other. Between two processes the messages of a lane arrive in the order in
/// which they were sent, and each matches one receive of the same length. Thread-safe for different lanes.
class LOCKSTEP_API Transport {
 public:
  virtual ~Transport() = default;

  /// The engine's name in the table of engines: "gloo", "mpi", "nccl".
  virtual std::string_view name() const = 0;
  virtual int worker() const = 0;
  virtual int num_workers() const = 0;
  virtual int num_lanes() const = 0;
  /// Whether messages are in the memory of a GPU, not of the host.
  virtual bool moves_device_memory() const { return false; }

  /// Sends and receives all of these messages and returns when that is done: sent memory may be changed, received
  /// memory may be read. Messages of zero bytes are skipped on both sides. A peer is never this process itself.
  ///
  /// Throws CollectiveError, with the engine's message and the peer where it is known, when a peer is gone, at the
  /// deadline, or after `abort`. After an error the transport can only be destroyed.
  virtual void exchange(int lane, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                        std::chrono::milliseconds timeout) = 0;

  /// Makes every exchange, now and later, fail with this reason. From any thread.
  virtual void abort(const std::string& reason) = 0;

  /// Tells that a worker has left the job and sends no more. Messages that it sent before may still arrive. For engines
  /// that do not detect it by themselves. From any thread.
  virtual void peer_left(int /*worker*/) {}
};

}  // namespace lockstep::comm
