#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>

namespace lockstep::tests {

/// Lets the threads of a group of workers join the bits that they have set, as a collective does between processes.
class AnyOfWorkers {
 public:
  explicit AnyOfWorkers(size_t num_workers) : barrier_(static_cast<ptrdiff_t>(num_workers)) {}

  uint8_t any(uint8_t mine) {
    bits_ |= mine;
    barrier_.arrive_and_wait();
    const uint8_t result = bits_;
    barrier_.arrive_and_wait();
    bits_ = 0;
    barrier_.arrive_and_wait();
    return result;
  }

  /// For a worker that has failed: the others go on without it.
  void leave() { barrier_.arrive_and_drop(); }

 private:
  std::barrier<> barrier_;
  std::atomic<uint8_t> bits_ = 0;
};

}  // namespace lockstep::tests
