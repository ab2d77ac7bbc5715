#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace nccl_standin {

constexpr int kMaxRanks = 16;
/// What a rank stages for one round, and what a round results in.
constexpr size_t kArea = size_t{2} << 20;
/// One message on its way from one rank to another.
constexpr size_t kChannel = size_t{256} << 10;

/// Where a rank is, for the others.
struct alignas(128) Slot {
  std::atomic<pid_t> pid;
  /// The collective whose copies to here are in the rank's stream, the last one that has been copied, and the last one
  /// that it has combined its part of.
  std::atomic<uint64_t> queued;
  std::atomic<uint64_t> staged;
  std::atomic<uint64_t> computed;
  /// A hash of the call, which must be equal on all ranks.
  std::atomic<uint64_t> signature;
  char card[64];
};

struct alignas(128) Channel {
  /// The pieces that the sender's stream copies to here, and those that the receiver's stream waits for.
  std::atomic<uint64_t> queued_from;
  std::atomic<uint64_t> queued_to;
  std::atomic<uint32_t> full;
  std::atomic<uint32_t> bytes;
  char data[kChannel];
};

/// Memory that all ranks of a communicator map, threads and processes alike.
class Segment {
 public:
  /// Opens the segment of that name, or makes it. Throws std::runtime_error.
  Segment(const std::string& name, int num_ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// Counts this rank. The last one removes the name.
  void join();
  bool is_complete() const;
  /// Removes the name where not all have joined.
  void forget() const;

  char* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  Slot& slot(int rank) const;
  char* staged(int rank) const;
  char* received(int rank) const;
  char* result() const;
  Channel& channel(int from, int to) const;

 private:
  struct Header;
  Header& header() const;

  std::string name_;
  int num_ranks_;
  char* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace nccl_standin
