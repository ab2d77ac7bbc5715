#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "lockstep/api.h"

/// Streams of replicas, through LibTorch's device-independent interface: no CUDA header is needed, and on the CPU
/// everything here does nothing.
namespace lockstep::detail {

/// One replica's stream. The work of a replica is ordered after what the caller had queued before `run`, and before
/// what the caller queues after it; nothing waits on the host.
class LOCKSTEP_API ReplicaStream {
 public:
  explicit ReplicaStream(c10::Device device);

  /// On the calling thread, before the replica starts: orders the replica's stream after the caller's.
  void follow_caller();
  /// On the calling thread, after the replica has returned: orders the caller's stream after the replica's.
  void lead_caller();

  /// Makes the replica's device and stream current on this thread for as long as it lives.
  class LOCKSTEP_API Scope {
   public:
    explicit Scope(ReplicaStream& stream);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::optional<c10::Stream> before_;
    std::optional<c10::Device> device_before_;
  };

 private:
  void order(const c10::Stream& first, const c10::Stream& second);

  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

/// Waits on the host for the calling thread's stream of a GPU, so that other threads may use what was queued there.
/// Does nothing for other devices.
LOCKSTEP_API void finish_stream(c10::Device device);

}  // namespace lockstep::detail
