#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include "lockstep/comm/device_collectives.h"

namespace lockstep::comm {

/// Whether the calling thread's current stream of a GPU is being captured.
bool is_capturing(int device);

/// The communicator of one rank of a group, with a stream and events of its own. Not blocking: NCCL's calls return at
/// once, and `state` says when they are done.
///
/// The rank's thread begins, posts and ends work; the thread that watches the group calls `problem` and `abort`.
class Communicator {
 public:
  Communicator(int device, int rank);
  /// The communicator was aborted, or finalized and destroyed, before.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int device() const { return device_; }
  int rank() const { return rank_; }

  /// Begins to connect, inside a group of NCCL's.
  ncclResult_t join(int num_ranks, const ncclUniqueId& id);
  /// Success, in progress, or what went wrong. An aborted communicator is in progress, and so is one that another
  /// thread uses. Never waits.
  ncclResult_t state();
  /// NCCL's message for an error of this communicator.
  std::string words(ncclResult_t code);

  /// Nobody aborts the communicator while this lives.
  std::unique_lock<std::timed_mutex> use() { return std::unique_lock(use_); }

  /// Work of one call, from `begin` to `end`.
  struct Work {
    c10::cuda::CUDAStream stream;
    bool captured = false;
    cudaEvent_t ready = nullptr;
  };
  /// Makes this communicator's stream wait for what the calling thread has queued on its current one.
  Work begin();
  /// Posts operations inside a group of NCCL's, with `use` held.
  ncclResult_t post(std::span<const DeviceOperation> operations);
  /// Makes the caller's stream wait for the work, and has it watched. Captured work is not: it has not begun.
  void end(const Work& work, const DeviceCall& call);
  /// Returns what is wrong with the communicator or its work, if anything is.
  std::optional<std::string> problem();
  /// Whether `problem` has found all work done.
  bool is_idle();
  /// Leaves work that is not done `limit` from now at most.
  void shorten(std::chrono::milliseconds limit);

  ncclResult_t finalize();
  void destroy();
  /// Ends the kernels in flight. Nothing can be posted any more. Returns when NCCL has ended them.
  void abort();

 private:
  using Clock = std::chrono::steady_clock;

  struct Pending {
    cudaEvent_t ready;
    cudaEvent_t end;
    std::string text;
    std::chrono::milliseconds timeout;
    /// When the GPU reached it, as far as it is known.
    std::optional<Clock::time_point> begun;
  };

  cudaEvent_t take_event();
  std::optional<std::string> problem_of(Pending& first) const;

  int device_;
  int rank_;
  cudaStream_t stream_ = nullptr;
  std::timed_mutex use_;
  ncclComm_t communicator_ = nullptr;
  std::mutex pending_mutex_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> free_events_;
  std::vector<cudaEvent_t> all_events_;
};

}  // namespace lockstep::comm
