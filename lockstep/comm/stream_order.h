#pragma once

#include <memory>
#include <span>
#include <vector>

#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include "lockstep/comm/collective_call.h"
#include "lockstep/device/stream.h"

/// Internal: orders the streams of ranks that are threads of one process around a collective, without host waits.
///
/// A rank records an event before it arrives. Between arrive and depart its streams wait for the events of the ranks
/// whose memory it uses. When its work is queued it records a second event, and after depart its streams wait for the
/// second events of the ranks that use its memory. What the rank queues or frees later is ordered after their work, so
/// LibTorch's allocator, which reuses memory in the order of the owner's stream, needs no other mark. All of this can
/// be captured into a CUDA graph, whose streams are then those of all ranks.
namespace lockstep::comm {

/// The events of one rank, for all collectives of a group. Ranks record and use them in turns: those of a collective
/// are not recorded again before all ranks have passed the rendezvous after their last use.
class RankEvents {
 public:
  using Streams = c10::SmallVector<c10::Stream, 2>;

  /// The events of one moment, one for each device.
  class Moment {
   public:
    void record(const Streams& streams);
    void block(const Streams& streams) const;

   private:
    std::vector<lockstep::detail::StreamEvent> events_;
    size_t recorded_ = 0;
  };

  Moment ready;
  Moment done;
};

/// Orders the current streams of one rank around one collective. Does nothing for tensors on the CPU.
class StreamOrder {
 public:
  /// Before arrive. `events` are those of all ranks of the whole group, of which this one is `rank`.
  StreamOrder(std::span<RankEvents> events, int rank, const CollectiveCall& call);
  /// After depart, where `end` was not called because of an error.
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  /// Between arrive and depart: calls `work`, which queues what the rank does with memory of others.
  template <typename Work>
  void run(Work&& work) {
    if (streams_.empty()) return work();
    begin();
    try {
      work();
    } catch (...) {
      record_done();
      throw;
    }
    record_done();
  }
  /// After depart.
  void end();

 private:
  void begin();
  void record_done();
  bool uses_memory_of(int user, int owner) const;

  std::span<RankEvents> events_;
  int rank_;
  const CollectiveCall& call_;
  RankEvents::Streams streams_;
  bool begun_ = false;
};

}  // namespace lockstep::comm
