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
/// It is a file without a name (memfd), reached through /proc: when the last process ends, however it ends, nothing is
/// left behind. The address range is as large as the machine's memory, and costs only what is touched. Freed blocks are
/// kept for the next allocation of their size, since a training step allocates the same sizes again and again.
/// Thread-safe. There is one for the process, which is never destroyed: tensors may outlive every strategy.
class LOCKSTEP_API SharedArena {
 public:
  /// Returns the arena of this process, made at the first call; null where the system has none, with the reason.
  static SharedArena* of_process(std::string& why_not);
  /// The same, or null before anybody has made it.
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

  /// What another process needs to map it: process, descriptor, size and a number that proves the file is the one.
  std::string offer() const;

 private:
  SharedArena() = default;
  std::string open();
  char* carve(size_t bytes);
  void give_back_pages(char* data, size_t bytes);

  /// Four sizes for each doubling, from one cache line up.
  static constexpr size_t kNumSizes = 160;
  struct FreeBlocks {
    std::mutex mutex;
    std::vector<char*> blocks;
  };

  int file_ = -1;
  char* base_ = nullptr;
  size_t size_ = 0;
  uint64_t nonce_ = 0;
  std::atomic<size_t> top_{0};
  std::atomic<size_t> kept_{0};
  std::atomic<size_t> used_{0};
  std::array<FreeBlocks, kNumSizes> free_;
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
};

/// While it lives, tensors on the CPU that the calling thread makes are in the arena of the process, where there is
/// one.
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
