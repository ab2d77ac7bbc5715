#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/nccl_standin/call.h"

namespace nccl_standin {

/// The ranks of a communicator whose ranks are all in this process, on one card: kernels read the memory of all of
/// them.
///
/// Work is put into streams when all ranks that it belongs to have called it. A stream never waits for what is not in
/// a stream yet, because streams may share a queue of the card, and would block what they wait for.
class LocalRanks {
 public:
  /// The ranks of the communicator with that identity.
  static std::shared_ptr<LocalRanks> of(const std::string& id, int num_ranks, const Faults& faults);
  LocalRanks(int num_ranks, const Faults& faults);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  ncclResult_t post(int rank, const std::vector<Call>& calls);
  ncclResult_t state(int rank);
  void abort();
  bool is_done();
  bool is_captured() const;

 private:
  struct Event;
  /// A call that a rank has made.
  struct Posted {
    int rank;
    Call call;
    /// When the rank's stream has done what was in it before.
    std::shared_ptr<Event> ready;
  };
  /// Calls that belong together: those of all ranks, or one that sends and one that receives.
  using Matched = std::vector<Posted>;
  using Queue = std::deque<Posted>;

  std::vector<Matched> take_matched();
  Matched take_front(const std::vector<Queue*>& queues);
  bool agree(const Matched& matched);
  cudaError_t submit(const std::vector<Matched>& all, bool captured);
  cudaError_t hold(const std::vector<Matched>& all);
  cudaError_t carry_out(const Matched& calls);
  cudaError_t reduce(const Matched& calls);
  cudaError_t scatter(const Matched& calls);
  cudaError_t copy(char* to, const char* from, size_t bytes);

  const size_t num_ranks_;
  const Faults faults_;
  mutable std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  /// Written by an abort, and read by kernels.
  int* released_ = nullptr;
  /// The last work that is not captured.
  std::shared_ptr<Event> last_;
  bool any_captured_ = false;
  /// The collectives of each rank, and the messages from each rank to each, that are not matched.
  std::vector<Queue> collectives_;
  std::vector<std::vector<Queue>> sent_;
  std::vector<std::vector<Queue>> received_;
  /// Calls of each rank that are in no stream.
  std::vector<size_t> left_;
  std::vector<ncclResult_t> errors_;
};

/// One of them.
class LocalCarrier final : public Carrier {
 public:
  LocalCarrier(std::shared_ptr<LocalRanks> ranks, int rank) : ranks_(std::move(ranks)), rank_(rank) {}

  ncclResult_t queue(const std::vector<Call>& calls) override { return ranks_->post(rank_, calls); }
  ncclResult_t state() override { return ranks_->state(rank_); }
  void abort() override { ranks_->abort(); }
  bool is_done() override { return ranks_->is_done(); }
  bool needs_abort() override { return false; }
  bool is_captured() const override { return ranks_->is_captured(); }

 private:
  std::shared_ptr<LocalRanks> ranks_;
  int rank_;
};

}  // namespace nccl_standin
