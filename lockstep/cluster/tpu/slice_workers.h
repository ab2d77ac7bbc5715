#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/environment.h"

/// The processes of a slice, from the environment of a TPU VM.
namespace lockstep::tpu {

struct SliceWorkers {
  /// Hosts, or hosts and ports, of this slice, in order.
  std::vector<std::string> addresses{};
  /// The variable that lists them.
  std::string source{};
};

/// Returns the workers that TPU_PROCESS_ADDRESSES lists, else those of TPU_WORKER_HOSTNAMES; nothing where neither is
/// set. Throws `c10::ValueError` where one of them is empty.
std::optional<SliceWorkers> slice_workers(const Environment& variables);

/// A number and the variable that contains it.
struct SourcedNumber {
  int value = 0;
  std::string source{};
};

/// Returns the index of this process. Throws `ContextError` where no variable contains it, `c10::ValueError` where
/// there is no such worker.
SourcedNumber slice_worker_index(const Environment& variables, const SliceWorkers& workers);

}  // namespace lockstep::tpu
