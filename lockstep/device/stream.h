#pragma once

#include <optional>
#include <utility>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "lockstep/api.h"

/// Streams of replicas, through LibTorch's device-independent interface: no CUDA header is needed, and on the CPU
/// everything here does nothing.
namespace lockstep::detail {

/// What a stream had queued at some moment, for others to wait for. Before the first `record` that is nothing. Its GPU
/// is current in all calls of LibTorch's event: these would make a context on the device that is current, or that they
/// go back to.
class LOCKSTEP_API StreamEvent {
 public:
  StreamEvent() = default;
  explicit StreamEvent(const c10::Stream& stream) { record(stream); }
  ~StreamEvent() { reset(); }
  StreamEvent(StreamEvent&& other) noexcept : event_(std::move(other.event_)) { other.event_.reset(); }
  StreamEvent& operator=(StreamEvent&&) = delete;

  /// From now on it is what `stream` has queued so far.
  void record(const c10::Stream& stream);
  /// What `stream` gets from now on begins after it.
  void block(const c10::Stream& stream) const;
  /// Whether it is done.
  bool query() const;

 private:
  bool is_recorded() const { return event_ && event_->was_marked_for_recording(); }
  void reset();

  std::optional<c10::Event> event_;
};

/// What `second` gets from now on begins after what `first` has queued so far.
LOCKSTEP_API void order_streams(const c10::Stream& first, const c10::Stream& second);

/// One replica's stream. The work of a replica is ordered after what the caller had queued before `run`, and before
/// what the caller queues after it; nothing waits on the host. Several replicas have streams of their own; the only one
/// uses the caller's.
class LOCKSTEP_API ReplicaStream {
 public:
  ReplicaStream(c10::Device device, bool is_only);

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
  c10::Device device_;
  /// Whether it is the caller's.
  bool is_callers_;
  std::optional<c10::Stream> stream_;
};

/// The streams of a GPU on which all uploads are made, and on which steps are recorded into graphs. LibTorch's pool has
/// few streams and gives each out several times, but `new_stream` never returns these two: what others queued on a
/// stream that is recorded would be recorded, too.
LOCKSTEP_API c10::Stream upload_stream(c10::Device gpu);
LOCKSTEP_API c10::Stream capture_stream(c10::Device gpu);

LOCKSTEP_API c10::Stream new_stream(c10::Device device);

/// Waits on the host for the calling thread's stream of a GPU, so that other threads may use what was queued there.
/// Does nothing for other devices.
LOCKSTEP_API void finish_stream(c10::Device device);

}  // namespace lockstep::detail
