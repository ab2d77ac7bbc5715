#include "lockstep/xla/engine/execute.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/xla/engine/launch.h"
#include "lockstep/xla/engine/matching_collectives.h"
#include "lockstep/xla/engine/offsets.h"
#include "lockstep/xla/engine/padding.h"
#include "lockstep/xla/engine/segmented_execution.h"
#include "lockstep/xla/graph/trace_difference.h"

namespace lockstep::xla {
namespace {

std::atomic<ExecutionListener*> current_listener{nullptr};

std::vector<XlaDevice*> devices_of(const std::vector<PendingWork>& works) {
  std::vector<XlaDevice*> devices;
  for (const PendingWork& work : works) devices.push_back(&work.device());
  return devices;
}

/// Whether a value has no elements: many functions trace nothing for a batch without rows.
bool has_empty(const Trace& trace) {
  return std::any_of(trace.nodes.begin(), trace.nodes.end(), [](const Node* node) { return node->numel() == 0; });
}

/// Throws if replicas called different functions. With equal functions, graphs can still differ: by sizes (a batch of
/// one row) or by the value of a number.
void check_same_functions(const PendingWork& first, const PendingWork& other, size_t replica,
                          const TraceDifference& difference) {
  const auto& a = first.device().functions();
  const auto& b = other.device().functions();
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(),
                                          [](const char* x, const char* y) { return std::strcmp(x, y) == 0; });
  if (in_a == a.end() && in_b == b.end()) return;
  if (has_empty(first.trace()) || has_empty(other.trace())) return;
  LOCKSTEP_CHECK_COLLECTIVE(false, "[run] replicas must compute the same: as operation ", in_a - a.begin(),
                            " replica 0 calls ", in_a == a.end() ? "nothing" : *in_a, ", replica ", replica, " calls ",
                            in_b == b.end() ? "nothing" : *in_b, " (replica 0 has ", difference.first, ", replica ",
                            replica, " has ", difference.second, "); branch on values by torch::where, not by replica");
}

/// Why replicas cannot run one program although they call the same functions.
std::string why_separate(const Trace& first, const Trace& other, const TraceDifference& difference) {
  for (size_t i = 0; i < std::min(first.arguments.size(), other.arguments.size()); ++i) {
    if (first.arguments[i]->shape != other.arguments[i]->shape) return "replicas have batches of different sizes";
  }
  return "replicas compute with different sizes or positions: one has " + difference.first + ", another one " +
         difference.second;
}

}  // namespace

void execute_together(std::vector<PendingWork>& works) {
  check_same_collectives(works);
  make_offsets_arguments(works);
  const bool same_collectives = use_same_collectives(works);
  if (same_collectives && listener() == nullptr && execute_padded(works)) return;
  for (size_t replica = 1; replica < works.size(); ++replica) {
    const auto difference = first_difference(works[0].trace(), works[replica].trace());
    if (!difference && same_collectives) continue;
    if (difference && !difference->sizes_only) {
      check_same_functions(works[0], works[replica], replica, *difference);
    }
    if (listener() != nullptr) {
      listener()->on_separate_execution(same_collectives
                                            ? why_separate(works[0].trace(), works[replica].trace(), *difference)
                                            : "replicas use the results of collectives differently");
    }
    return execute_in_segments(works);
  }
  if (works[0].empty()) return;
  std::vector<Trace*> traces;
  for (PendingWork& work : works) traces.push_back(&work.trace());
  launch(traces, devices_of(works), [&](const std::shared_ptr<const Program>& program) {
    for (const PendingWork& work : works) {
      if (listener() != nullptr && work.device().run.load() != nullptr)
        listener()->on_launch(work, work.device().replica, program);
    }
  });
  for (PendingWork& work : works) work.executed();
}

void set_listener(ExecutionListener* listener) { current_listener.store(listener, std::memory_order_release); }

ExecutionListener* listener() { return current_listener.load(std::memory_order_acquire); }

}  // namespace lockstep::xla
