#include "lockstep/xla/engine/offsets.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "lockstep/base/log.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/graph/ops/build.h"

namespace lockstep::xla {
namespace {

/// Steps that are remembered; beyond, all are forgotten, which costs a recompilation for each.
constexpr size_t kMostStepsWithOffsets = 4096;
/// The recompilation of a step that is a warning.
constexpr int kWarnedRecompilation = 3;

/// The offsets of a step at one size: one entry for each dimension of each slice.
struct StepOffsets {
  std::vector<int64_t> last;
  int recompilations = 0;
};

struct AllOffsets {
  std::mutex mutex;
  std::unordered_map<uint64_t, StepOffsets> steps;
  /// Which offsets of a step change, whatever its sizes.
  std::unordered_map<uint64_t, std::vector<char>> changes;
};

AllOffsets& all_offsets() {
  static auto& all = *new AllOffsets;
  return all;
}

uint64_t mixed(uint64_t hash, int64_t word) {
  hash = (hash ^ static_cast<uint64_t>(word)) * 1099511628211u;
  return hash ^ hash >> 29;
}

bool has_offsets(const Trace& trace) {
  for (const Node* node : trace.nodes) {
    if (node->op == Op::Slice || node->op == Op::UpdateSlice) return true;
  }
  return false;
}

/// Equal for traces that differ only in offsets.
uint64_t identity_without_offsets(const Trace& trace) {
  uint64_t hash = trace.skeleton;
  for (const Node* node : trace.nodes) {
    for (const int64_t size : node->shape) hash = mixed(hash, size);
    if (node->op == Op::Slice || node->op == Op::UpdateSlice) continue;
    for (size_t i = 0; i < num_size_attributes(*node); ++i) hash = mixed(hash, node->attributes[i]);
  }
  return hash;
}

std::vector<int64_t> offsets_of(const Trace& trace) {
  std::vector<int64_t> offsets;
  for (const Node* node : trace.nodes) {
    const Ints begin = begin_of(*node);
    offsets.insert(offsets.end(), begin.begin(), begin.end());
  }
  return offsets;
}

/// The slice that has this offset.
const Node& slice_with(const Trace& trace, size_t offset) {
  for (const Node* node : trace.nodes) {
    const size_t count = begin_of(*node).size();
    if (offset < count) return *node;
    offset -= count;
  }
  return *trace.nodes[0];
}

void report_changed_offset(StepOffsets& step, const Trace& trace, size_t offset, int64_t now) {
  ++step.recompilations;
  count([](Counters& all) { ++all.recompiles; });
  const std::string reason = c10::str("an offset in ", slice_with(trace, offset).origin, " was ", step.last[offset],
                                      " and now is ", now, "; it is an argument from now on");
  if (step.recompilations == kWarnedRecompilation) {
    LOCKSTEP_LOG(Warn) << "one step has been compiled " << step.recompilations + 1 << " times: " << reason;
  } else {
    LOCKSTEP_LOG(Info) << "compiling a step again: " << reason;
  }
}

/// Compares the offsets of all replicas with those of the last run. Returns which of them change.
std::vector<char> changing_offsets(uint64_t identity, const std::vector<PendingWork>& works) {
  AllOffsets& all = all_offsets();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.steps.size() >= kMostStepsWithOffsets && all.steps.count(identity) == 0) {
    all.steps.clear();
    all.changes.clear();
  }
  StepOffsets& step = all.steps[identity];
  std::vector<char>& changes = all.changes[works[0].trace().skeleton];
  std::vector<int64_t> first = offsets_of(works[0].trace());
  const bool is_known = step.last.size() == first.size();
  if (!is_known) step = {first, 0};
  changes.resize(first.size(), 0);
  bool is_reported = !is_known;
  for (const PendingWork& work : works) {
    const std::vector<int64_t> now = offsets_of(work.trace());
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] == step.last[i] || changes[i] != 0) continue;
      if (!is_reported) report_changed_offset(step, work.trace(), i, now[i]);
      is_reported = true;
      changes[i] = 1;
    }
  }
  step.last = std::move(first);
  return changes;
}

/// If one offset of a slice changes, those along all dimensions that it cuts are arguments.
void make_dynamic(Node& node, c10::ArrayRef<char> changes) {
  if (std::find(changes.begin(), changes.end(), 1) == changes.end()) return;
  const Node& whole = *node.operands[0];
  const Node& part = node.op == Op::Slice ? node : *node.operands[1];
  c10::SmallVector<char, 6> is_argument;
  for (size_t dim = 0; dim < changes.size(); ++dim) is_argument.push_back(part.shape[dim] < whole.shape[dim] ? 1 : 0);
  make_dynamic_slice(node, is_argument);
}

void make_dynamic(Trace& trace, const std::vector<char>& changes) {
  size_t next = 0;
  for (Node* node : trace.nodes) {
    const size_t count = begin_of(*node).size();
    if (count > 0) make_dynamic(*node, c10::ArrayRef<char>(changes.data() + next, count));
    next += count;
  }
  trace = collect(std::move(trace.results));
}

/// What all replicas compute without offsets; nothing if there are none, or if replicas compute different things.
std::optional<uint64_t> common_identity(const std::vector<PendingWork>& works) {
  if (!has_offsets(works[0].trace())) return std::nullopt;
  const uint64_t identity = identity_without_offsets(works[0].trace());
  for (const PendingWork& work : works) {
    const Trace& trace = work.trace();
    const bool is_same = trace.nodes.size() == works[0].trace().nodes.size();
    if (!is_same || identity_without_offsets(trace) != identity) return std::nullopt;
  }
  return identity;
}

}  // namespace

bool is_known_with_offsets(const std::vector<PendingWork>& works) {
  const std::optional<uint64_t> identity = common_identity(works);
  if (!identity) return false;
  const std::lock_guard<std::mutex> lock(all_offsets().mutex);
  return all_offsets().steps.count(*identity) > 0;
}

void make_offsets_arguments(std::vector<PendingWork>& works) {
  const std::optional<uint64_t> identity = common_identity(works);
  if (!identity) return;
  const std::vector<char> changes = changing_offsets(*identity, works);
  if (std::find(changes.begin(), changes.end(), 1) == changes.end()) return;
  for (PendingWork& work : works) make_dynamic(work.trace(), changes);
}

}  // namespace lockstep::xla
