#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/pieces_to_write.h"

/// Internal: the state after the last steps in files of a memory file system, which survive the processes of a job.
///
/// Each worker has two files, written in turns and in place. A file is complete when its header says so, which it does
/// not while it is written: of two, one is always complete. Nothing is synced and nothing has checksums.
namespace lockstep::detail {

/// A snapshot that can be read on this machine.
struct MemorySnapshot {
  int64_t step = 0;
  /// Tells snapshots of different jobs apart.
  uint64_t job = 0;
  /// The files to read, the one with numbers and texts first.
  std::vector<std::string> files;
};

/// A state that was opened, and may differ between workers.
struct OpenedState {
  State state;
  /// The names of which workers may have opened different values; those of the first worker count.
  std::set<std::string> own = {};
};

class LOCKSTEP_API MemorySnapshots {
 public:
  /// Writes to `folder`. Other jobs there are those that were before this one: their files are removed when this one
  /// has a complete snapshot on all workers. `shares_memory`: workers are on one machine, and each writes its share;
  /// otherwise each writes all that it holds.
  MemorySnapshots(std::string folder, uint64_t job, WriterPlace place, bool shares_memory);
  ~MemorySnapshots();
  MemorySnapshots(const MemorySnapshots&) = delete;
  MemorySnapshots& operator=(const MemorySnapshots&) = delete;

  /// Where workers do not share memory: gathers small tensors of which each worker holds a part, such as the copies of
  /// variables, so that each one has all. All workers call it.
  void gather_small(std::vector<ObjectState>& objects) const;
  /// Copies the state into the older file. All workers call it after the same steps. Calls `check_values` when it has
  /// been copied; where that throws, the snapshot is not complete. DataError where the memory does not suffice.
  void write(
      int64_t step, const std::vector<ObjectState>& objects, c10::function_ref<void()> check_values = [] {});

  /// Returns what is complete in `folder`, the newest first.
  static std::vector<MemorySnapshot> list(const std::string& folder);
  /// Returns its state, which refers to the files. DataError where one is damaged.
  static OpenedState open(const MemorySnapshot& snapshot);

 private:
  /// A mapped file.
  struct Slot {
    std::string path;
    int descriptor = -1;
    char* memory = nullptr;
    int64_t num_bytes = 0;
  };
  static void reserve(Slot& slot, int64_t num_bytes);
  void remove_other_jobs() const;

  std::string folder_;
  uint64_t job_;
  WriterPlace place_;
  bool shares_memory_;
  std::array<Slot, 2> slots_;
  int64_t num_written_ = 0;
};

}  // namespace lockstep::detail
