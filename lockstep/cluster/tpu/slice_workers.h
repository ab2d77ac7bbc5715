#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/environment.h"

/// What the environment of a TPU VM says of the processes that share a slice.
namespace lockstep::tpu {

struct SliceWorkers {
  /// Hosts, or hosts and ports, of this slice, in order.
  std::vector<std::string> addresses{};
  /// The variable that they are in.
  std::string source{};
};

/// Returns the workers that TPU_PROCESS_ADDRESSES lists, else those of TPU_WORKER_HOSTNAMES; nothing where neither is
/// set. Throws `c10::ValueError` where one of them is empty.
std::optional<SliceWorkers> slice_workers(const Environment& variables);

/// A number and the variable that said it.
struct SourcedNumber {
  int value = 0;
  std::string source{};
};

/// Returns which of them this process is. Throws `ContextError` where no variable says so, `c10::ValueError` where
/// there is no such worker.
SourcedNumber slice_worker_index(const Environment& variables, const SliceWorkers& workers);

}  // namespace lockstep::tpu
