#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/nccl_standin/call.h"
#include "tests/support/nccl_standin/segment.h"

namespace nccl_standin {

/// One rank of a communicator over several processes. Streams copy to and from memory that all ranks map; a thread of
/// the rank combines it.
///
/// A stream waits for other ranks only when their copies are in their streams: ranks of one process may share a queue
/// of the card, and would block what they wait for.
class StagedRank final : public Carrier {
 public:
  /// The segment must outlive this.
  StagedRank(Segment& segment, int rank, int num_ranks, const Faults& faults);
  ~StagedRank() override;

  ncclResult_t queue(const std::vector<Call>& calls) override;
  ncclResult_t state() override;
  void abort() override { aborted_.store(true); }
  bool is_done() override;
  bool needs_abort() override { return error_.load() != ncclSuccess && !aborted_.load(); }
  bool is_captured() const override { return false; }

 private:
  struct Flags {
    alignas(128) uint32_t staged = 0;
    alignas(128) uint32_t done = 0;
  };
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  /// What is staged at once: a part of a collective, or a piece of each message of a group.
  struct Round {
    Call call;
    /// Bytes to and from each rank, for messages, and the number of the piece.
    std::vector<size_t> to{};
    std::vector<size_t> from{};
    std::vector<uint64_t> number_to{};
    std::vector<uint64_t> number_from{};
    std::vector<Copy> in{};
    std::vector<Copy> out{};
    uint64_t number = 0;
    bool is_staged = false;
  };

  void add_collective(const Call& call);
  void add_messages(const std::vector<Call>& calls);
  /// Puts what can be put into streams.
  cudaError_t advance();
  cudaError_t stage(Round& round);
  bool are_others_staged(const Round& round) const;
  cudaError_t take(const Round& round);
  static cudaError_t copy_all(const std::vector<Copy>& copies, cudaStream_t stream);

  void work();
  bool do_round(const Round& round);
  bool do_collective(const Round& round);
  bool do_messages(const Round& round);
  void combine_slice(const Call& call);
  template <typename Ready>
  bool wait(Ready ready);
  void fail(ncclResult_t code) { error_.store(code); }

  Segment& segment_;
  const int rank_;
  const int num_ranks_;
  const Faults faults_;
  /// What the GPU writes: that a round is staged; and reads: that it is done.
  Flags* flags_ = nullptr;
  /// After the last copies out of the segment.
  cudaEvent_t taken_ = nullptr;
  std::mutex mutex_;
  /// That of all calls: the flags are those of one stream.
  cudaStream_t stream_ = nullptr;
  /// Not in the stream, or not wholly.
  std::deque<Round> rounds_;
  uint64_t num_collectives_ = 0;
  std::vector<uint64_t> num_to_;
  std::vector<uint64_t> num_from_;
  std::atomic<uint64_t> launched_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<int> error_{ncclSuccess};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> stops_{false};
  /// Never held in a call of CUDA's: that may wait for the GPU, which waits for the thread.
  std::mutex staged_mutex_;
  /// In the stream, for the thread.
  std::deque<Round> staged_;
  std::thread thread_;
};

}  // namespace nccl_standin
