#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "lockstep/api.h"

namespace lockstep {

struct ReplicaPosition;

namespace detail {

class ReplicaRandom;
struct ContextFrame;

/// Internal: what lockstep keeps for the thread of a replica, beside LibTorch's own thread-local state. Null where the
/// thread has none.
struct CarriedState {
  /// Which replica it is. Layers above define the types.
  const ReplicaPosition* position = nullptr;
  const ContextFrame* frame = nullptr;
  ReplicaRandom* random = nullptr;
  /// Where it makes tensors; nothing on the CPU.
  std::optional<c10::Device> place = std::nullopt;
  /// The canonical name of the replica's device.
  const std::string* device = nullptr;
};

/// The state of the thread that the calling thread computes for; null if it computes for itself.
///
/// LibTorch may differentiate tensors of GPUs and XLA devices on threads of its own: hooks and backward functions of
/// the user belong to the replica whose thread called `backward`. LibTorch gives these threads the caller's
/// thread-local state, and our state goes along with it. Functions that return state of the calling thread ask here if
/// it has none.
LOCKSTEP_API const CarriedState* carried_state();

/// The number of the run on XLA devices in which the calling thread takes part; 0 for none.
LOCKSTEP_API std::atomic<uint64_t>& run_of_thread();
/// That of the thread that the calling thread computes for; 0 if it computes for itself.
LOCKSTEP_API uint64_t carried_run();

/// For as long as it lives, threads that LibTorch lets compute for the calling thread have `state`, and its run. What
/// it points to must live as long.
class LOCKSTEP_API CarriedStateScope {
 public:
  explicit CarriedStateScope(const CarriedState& state);
  ~CarriedStateScope();
  CarriedStateScope(const CarriedStateScope&) = delete;
  CarriedStateScope& operator=(const CarriedStateScope&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace detail
}  // namespace lockstep
