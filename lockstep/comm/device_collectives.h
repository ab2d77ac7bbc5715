#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/job/job.h"

/// Collectives that an engine does by itself between GPUs. The engine `nccl` implements them.
namespace lockstep::comm {

/// One operation of one rank, as NCCL defines it. Ranks queue the same operations in the same order.
struct DeviceOperation {
  enum class Kind {
    AllReduce,
    Reduce,
    Broadcast,
    /// `count` elements of each rank; the output has them all, in rank order.
    AllGather,
    /// `count` elements of the output; the input has those of all ranks, in rank order.
    ReduceScatter,
    Send,
    Receive,
  };
  Kind kind = Kind::AllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
  /// Not Mean.
  ReduceOp::Kind reduce_op = ReduceOp::Sum;
  /// The root, or the other rank of Send and Receive.
  int peer = -1;
};

/// What one local rank queues together.
struct RankOperations {
  int local = 0;
  std::span<const DeviceOperation> operations{};
};

/// What errors say of a call, and how long its work on the GPUs may take once they have reached it.
struct DeviceCall {
  std::string text;
  std::chrono::milliseconds timeout{};
};

struct DeviceCollectivesOptions {
  /// What errors call the group; unique in the job.
  std::string name;
  /// The GPU of each local rank.
  std::vector<int> devices{};
  /// How long to wait for other ranks in calls without a limit of their own, and while connecting.
  std::chrono::milliseconds timeout{};
  /// How long while connecting, where that is longer: several cards take seconds.
  std::chrono::milliseconds connect_timeout{};
  /// The job whose workers have these ranks, each as many; null for the ranks of one process.
  std::shared_ptr<Job> job{};
};

/// The communicators of the local ranks of one group.
///
/// Work is ordered by events: it begins when the GPU has done what the calling thread has queued on its current stream
/// before, and what the thread queues there afterwards begins when it is done. The host waits for other ranks to queue
/// the same, never for the GPU. A caller that wants to overlap it with other work makes another stream current.
///
/// A thread of the group watches the work: an error of the engine, work that is not done in time and `abort` end
/// all work of the local ranks on the GPUs. The memory that it would have written then holds anything, so every call
/// after that is a CollectiveError that says what happened. Thread-safe for different local ranks.
class LOCKSTEP_API DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  /// The engine's name.
  virtual std::string_view name() const = 0;
  virtual const std::vector<int>& devices() const = 0;
  /// Whether the engine can reduce such numbers.
  virtual bool reduces(c10::ScalarType dtype) const = 0;

  /// Connects all ranks, unless they are connected; `run` does so, too. For ranks of one process any of their threads
  /// connects all of them. CollectiveError with the engine's message, or at the deadline.
  virtual void connect() = 0;
  /// Queues work of one local rank, or of several on one thread. ContextError where a stream is captured and the ranks
  /// are not connected.
  virtual void run(std::span<const RankOperations> work, const DeviceCall& call) = 0;

  /// Ends all work, now and later. The first reason counts.
  virtual void abort(const std::string& reason) = 0;
  /// A rank has failed or left: work that the GPUs do not finish in a few seconds is ended.
  virtual void give_up_soon() = 0;
  /// Throws what has ended the work, if anything has. `asks` stands in the error as the call.
  virtual void check(const char* asks) = 0;
  /// As `check` where no call has thrown it yet. Otherwise the ranks of one process are connected anew at the next
  /// call. No rank may be inside a call.
  virtual void renew() = 0;
};

/// Returns why NCCL cannot carry collectives between these devices of one process; empty where it can. It needs several
/// GPUs, each of them another card.
LOCKSTEP_API std::string why_no_device_collectives(std::span<const c10::Device> devices);

/// Whether the engine takes several ranks on one card, as only the stand-in of the tests does.
LOCKSTEP_API bool takes_ranks_of_one_card();

/// Makes the communicators of one process; they are connected at the first call.
LOCKSTEP_API std::shared_ptr<DeviceCollectives> make_device_collectives(const DeviceCollectivesOptions& options);

}  // namespace lockstep::comm
