#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

#include "tests/support/nccl_standin/segment.h"

namespace nccl_standin {

enum class Kind { AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, Send, Receive };

/// A call of the program.
struct Call {
  Kind kind;
  const char* input;
  char* output;
  size_t count;
  ncclDataType_t dtype;
  ncclRedOp_t op;
  int peer;
  cudaStream_t stream;
};

/// What the thread of a rank does between two copies of a stream. A captured step is done at every replay.
struct Step {
  Kind kind = Kind::AllReduce;
  /// Elements of each rank.
  size_t count = 0;
  ncclDataType_t dtype = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  /// Bytes to and from each rank, for messages.
  std::vector<size_t> to{};
  std::vector<size_t> from{};
  /// Whether a call of the program begins with it.
  bool begins_call = false;
  bool captured = false;

  uint64_t signature() const;
  bool is_message() const { return kind == Kind::Send || kind == Kind::Receive; }
};

/// Faults, from the environment at the time when a communicator is made. The n-th call of a rank (from 1) is an error,
/// or hangs, or is late; on rank NCCL_STANDIN_RANK alone, where that is set.
struct Faults {
  Faults();
  int rank = -1;
  long error_at = 0;
  long hang_at = 0;
  long delay_at = 0;
  std::chrono::milliseconds delay{};
  /// Bytes in a second that a call takes at least; 0 for no limit.
  double wire = 0;
  bool refuses_shared_cards = false;
};

/// One rank of a communicator. Streams copy to and from memory that all ranks share; a thread of the rank combines it.
class Rank {
 public:
  Rank(const std::string& id, int rank, int num_ranks, bool blocking);
  ~Rank();

  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }
  int device() const { return device_; }
  bool is_blocking() const { return blocking_; }

  /// Queues calls of one group.
  ncclResult_t queue(const std::vector<Call>& calls);
  /// Whether all ranks have joined, and what went wrong since.
  ncclResult_t state();
  /// Lets all queued work go on without doing it, now and later.
  void abort();
  /// Waits until queued work is done, some seconds at most.
  void finish();
  /// Whether nothing can run any more that needs this.
  bool is_unused() const { return done_.load() >= launched_.load() && !any_captured_; }
  /// Says that ncclGroupEnd has returned early, as the real one may.
  void note_in_progress() { in_progress_polls_ = 1; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Flags {
    alignas(128) uint32_t staged = 0;
    alignas(128) uint32_t done = 0;
  };

  cudaError_t queue_step(const Step& step, cudaStream_t stream);
  cudaError_t queue_collective(const Call& call, bool captured);
  cudaError_t queue_chunk(const Call& call, Step& step, size_t begin, size_t piece);
  cudaError_t queue_messages(const std::vector<Call>& calls, bool captured);

  void work();
  bool do_step(const Step& step);
  bool do_collective(const Step& step);
  bool do_messages(const Step& step);
  void combine_slice(const Step& step);
  template <typename Ready>
  bool wait(Ready ready);
  void fail(ncclResult_t code) { error_.store(code); }
  bool injects(const Step& step);

  int rank_;
  int num_ranks_;
  bool blocking_;
  int device_ = 0;
  Faults faults_;
  Segment segment_;
  /// What the GPU writes: the number of the step that is staged; and reads: that it is done.
  Flags* flags_ = nullptr;
  std::mutex steps_mutex_;
  std::deque<Step> steps_;
  bool any_captured_ = false;
  std::atomic<uint64_t> launched_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<int> in_progress_polls_{0};
  std::atomic<int> error_{ncclSuccess};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> stops_{false};
  std::atomic<bool> checked_cards_{false};
  long calls_ = 0;
  uint64_t sequence_ = 0;
  std::thread thread_;
};

}  // namespace nccl_standin
