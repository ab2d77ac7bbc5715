#include "lockstep/xla/engine/execute.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/xla/engine/launch.h"
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

/// Throws if replicas made collectives for different purposes: two optimizers of equal shapes have equal graphs.
void check_same_collectives(const std::vector<PendingWork>& works) {
  const auto& first = works[0].device().collectives();
  for (size_t replica = 1; replica < works.size(); ++replica) {
    const auto& other = works[replica].device().collectives();
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
      LOCKSTEP_CHECK_COLLECTIVE(first[i] == other[i], "[run] all replicas must make the same calls: as collective ", i,
                                " replica 0 makes ", first[i], ", replica ", replica, " makes ", other[i],
                                "; make the same collectives in the same order on every replica");
    }
  }
}

}  // namespace

void execute_together(std::vector<PendingWork>& works) {
  check_same_collectives(works);
  make_offsets_arguments(works);
  if (listener() == nullptr && execute_padded(works)) return;
  for (size_t replica = 1; replica < works.size(); ++replica) {
    const auto difference = first_difference(works[0].trace(), works[replica].trace());
    if (!difference) continue;
    if (!difference->sizes_only) check_same_functions(works[0], works[replica], replica, *difference);
    if (listener() != nullptr) listener()->on_separate_execution("replicas have batches of different sizes");
    return execute_in_segments(works);
  }
  if (works[0].empty()) return;
  std::vector<Trace*> traces;
  for (PendingWork& work : works) traces.push_back(&work.trace());
  launch(traces, devices_of(works), [&](const std::shared_ptr<const Program>& program) {
    for (const PendingWork& work : works) {
      if (listener() != nullptr && work.device().run != nullptr)
        listener()->on_launch(work, work.device().replica, program);
    }
  });
  for (PendingWork& work : works) work.executed();
}

void set_listener(ExecutionListener* listener) { current_listener.store(listener, std::memory_order_release); }

ExecutionListener* listener() { return current_listener.load(std::memory_order_acquire); }

}  // namespace lockstep::xla
