#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/api.h"
#include "lockstep/device/carried_state.h"
#include "lockstep/value/replica_position.h"

/// Internal: each thread's stack of entered contexts, the innermost last.
namespace lockstep::detail {

class StrategyImpl;

/// One entry of a thread's stack of contexts.
struct ContextFrame {
  StrategyImpl* strategy = nullptr;
  /// The local replica, or -1 in cross-replica context.
  int replica = -1;
  /// Number of merge functions of the strategy that enclose this context. A run inside a merge function has threads of
  /// its own.
  int depth = 0;
  /// The run of the strategy that the replica belongs to, counted from 1; 0 in cross-replica context.
  uint64_t run = 0;
  /// Whether the strategy is the default one, whose replica is the program itself.
  bool is_default = false;
};

/// Returns the innermost frame of the calling thread, or of the thread that it runs a backward pass for; null if no
/// context is entered.
LOCKSTEP_API const ContextFrame* current_frame();

/// Returns the number of frames of the calling thread.
size_t num_frames();

/// Returns whether a strategy other than the default one is current.
bool is_strategy_entered();

/// Enters a context; the destructor leaves it. Guards end in reverse order, on the thread that made them.
class LOCKSTEP_API ContextGuard {
 public:
  explicit ContextGuard(ContextFrame frame);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  PositionGuard position_;
};

/// Whether LibTorch may run backward passes of replicas on other threads, which belong to one replica each. The only
/// replica on a GPU runs them itself where LibTorch can do that, unless its function enters InferenceMode(false), which
/// switches LibTorch's threads on again. Several replicas on a GPU would share such a thread.
bool runs_backward_elsewhere(const StrategyImpl& strategy);

/// Lets the innermost context of a thread hold on the threads on which LibTorch runs backward passes for it, during its
/// lifetime. Made where the context of a replica or of a merge function is complete.
class ContextCarrier {
 public:
  /// `device_name` is the name of the replica's device, null for a merge function. No effect unless `on`.
  ContextCarrier(bool on, const std::string* device_name);
  ContextCarrier(const ContextCarrier&) = delete;
  ContextCarrier& operator=(const ContextCarrier&) = delete;

 private:
  const ContextFrame frame_;
  const ReplicaPosition position_;
  std::optional<CarriedStateScope> carried_;
};

}  // namespace lockstep::detail
