#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/nccl_standin/call.h"
#include "tests/support/nccl_standin/segment.h"

namespace nccl_standin {

/// One rank of a communicator. Ranks of one process work on the GPU (local_ranks.h), those of several through memory
/// that all of them map (staged_rank.h).
class Rank {
 public:
  Rank(const std::string& id, int rank, int num_ranks, bool blocking);
  ~Rank();

  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }
  int device() const { return device_; }
  bool is_blocking() const { return blocking_; }

  /// Queues calls of one group.
  ncclResult_t queue(std::vector<Call> calls);
  /// Whether all ranks have joined and calls are in their streams, and what went wrong since.
  ncclResult_t state();
  /// Lets all queued work go on without doing it, now and later.
  void abort();
  /// Waits until queued work is done, some seconds at most.
  void finish();
  /// Whether nothing can run any more that needs this.
  bool is_unused();
  /// Says that ncclGroupEnd has returned early, as the real one may.
  void note_in_progress() { in_progress_polls_ = 1; }

 private:
  bool is_on_card_of(int other) const;
  bool shares_its_card() const;
  bool are_all_here() const;
  /// Makes the carrier when all ranks have joined. Null before, and where that failed.
  std::shared_ptr<Carrier> carrier();
  void make_carrier();
  ncclResult_t failure();

  const std::string id_;
  const int rank_;
  const int num_ranks_;
  const bool blocking_;
  int device_ = 0;
  Faults faults_;
  Segment segment_;
  std::mutex mutex_;
  std::shared_ptr<Carrier> carrier_;
  bool is_aborted_ = false;
  ncclResult_t failure_ = ncclSuccess;
  std::atomic<int> in_progress_polls_{0};
};

}  // namespace nccl_standin
