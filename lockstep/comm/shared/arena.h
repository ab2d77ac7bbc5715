#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::comm {

/// Memory of this process that other processes of the same user may map while it lives.
///
/// It is a file without a name (memfd), opened through /proc: the system frees it with the last process that maps it.
/// The address range is as large as the machine's memory; only touched pages take memory. Freed blocks are reused for
/// the next allocation of their size, since a training step allocates the same sizes again and again.
/// A forked child has a copy of its own, which nobody else sees; pages that the child has not written show what the
/// parent writes later.
/// Thread-safe. There is one for the process, which is never destroyed: tensors may outlive every strategy.
class LOCKSTEP_API SharedArena {
 public:
  /// Returns the arena of this process, made at the first call; null, with the reason, where the system refuses.
  static SharedArena* of_process(std::string& why_not);
  /// Returns the arena of this process, or null before `of_process` has made it.
  static SharedArena* existing();

  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  /// Returns memory that begins on a cache line, or null where the arena is full.
  void* allocate(size_t bytes);
  void free(void* data);

  bool contains(const void* data) const {
    return static_cast<const char*>(data) >= base_ && static_cast<const char*>(data) < base_ + size_;
  }
  char* base() const { return base_; }
  uint64_t offset_of(const void* data) const { return static_cast<uint64_t>(static_cast<const char*>(data) - base_); }

  /// Returns what another process needs to map it: process, file descriptor, size and a random number that identifies
  /// the arena.
  std::string offer() const;
  /// Whether other processes can map it. False in a forked child until `renew`.
  bool can_be_offered() const { return file_ >= 0; }
  /// Moves the contents into a new file at the same addresses: processes that have mapped the old one do not reach it
  /// any more. No other thread may write to the arena meanwhile. Returns why it failed; empty on success.
  std::string renew();

 private:
  SharedArena() = default;
  std::string open();
  std::string copy_contents(int file) const;
  char* carve(size_t bytes);
  void give_back_pages(char* data, size_t bytes);
  void lock_all();
  void unlock_all();
  void become_private();

  /// Four sizes for each doubling, from one cache line up.
  static constexpr size_t kNumSizes = 160;
  /// Fewer mutexes than lists: all of them are locked at once in `renew` and `fork`.
  static constexpr size_t kNumMutexes = 16;
  using FreeBlocks = std::vector<char*>;

  int file_ = -1;
  char* base_ = nullptr;
  size_t size_ = 0;
  uint64_t nonce_ = 0;
  std::atomic<size_t> top_{0};
  std::atomic<size_t> kept_{0};
  std::atomic<size_t> used_{0};
  std::array<FreeBlocks, kNumSizes> free_;
  std::array<std::mutex, kNumMutexes> mutexes_;
};

/// The arena of another process, mapped into this one for as long as the object lives.
class LOCKSTEP_API PeerArena {
 public:
  /// `offer` is what its owner's `offer()` returned. Throws c10::Error with the reason where it cannot be mapped:
  /// another machine, another container, another user.
  explicit PeerArena(const std::string& offer);
  ~PeerArena();
  PeerArena(const PeerArena&) = delete;
  PeerArena& operator=(const PeerArena&) = delete;

  char* at(uint64_t offset) const { return base_ + offset; }
  uint64_t size() const { return size_; }

 private:
  char* base_ = nullptr;
  uint64_t size_ = 0;
  uint64_t num_forks_ = 0;
};

/// Returns how many forks lie between the first process of this program and the calling one, counted since the arena or
/// a PeerArena was made. Costs one load.
LOCKSTEP_API uint64_t num_forks();

/// While it lives with `on`, CPU tensors that the calling thread allocates lie in the arena of the process, where there
/// is one.
class LOCKSTEP_API SharedAllocation {
 public:
  explicit SharedAllocation(bool on);
  ~SharedAllocation();
  SharedAllocation(const SharedAllocation&) = delete;
  SharedAllocation& operator=(const SharedAllocation&) = delete;

 private:
  bool before_;
};

}  // namespace lockstep::comm
