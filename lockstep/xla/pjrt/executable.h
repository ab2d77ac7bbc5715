#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/xla/pjrt/buffer.h"

namespace lockstep::xla {

/// Bytes of device memory that a program takes on each device.
struct MemoryUse {
  int64_t code = 0;
  int64_t arguments = 0;
  int64_t results = 0;
  /// Results that reuse the memory of donated arguments.
  int64_t aliased = 0;
  int64_t temporary = 0;
};

/// A compiled program.
class LOCKSTEP_API Executable {
 public:
  Executable() = default;
  /// `launches` counts the launches of the client, and outlives the executable.
  Executable(const Plugin& plugin, std::atomic<int>& launches, void* handle);
  Executable(Executable&& other) noexcept;
  Executable& operator=(Executable&& other) noexcept;
  ~Executable();

  explicit operator bool() const { return handle_ != nullptr; }
  size_t num_results() const { return num_results_; }

  /// Starts the program on all of its devices. `arguments[d]` are handles of buffers on device d = replica x partitions
  /// + partition. Returns the results of each device without waiting; reading a result waits for it. `keeps_arguments`:
  /// the memory of donated arguments is not taken over this time.
  std::vector<std::vector<Buffer>> execute(const std::vector<std::vector<void*>>& arguments,
                                           bool keeps_arguments = false) const;

  MemoryUse memory_use() const;
  /// The compiled program for `Client::load`. Throws if the plugin cannot serialize it.
  std::string serialized() const;
  /// The program after XLA's passes, as a serialized HLO module. For tests of the partitioner.
  std::string optimized_program() const;

 private:
  const Plugin* plugin_ = nullptr;
  std::atomic<int>* launches_ = nullptr;
  void* handle_ = nullptr;
  size_t num_results_ = 0;
};

}  // namespace lockstep::xla
