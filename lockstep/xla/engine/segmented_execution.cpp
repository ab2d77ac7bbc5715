#include "lockstep/xla/engine/segmented_execution.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/xla/engine/launch.h"
#include "lockstep/xla/engine/matching_collectives.h"
#include "lockstep/xla/graph/trace_difference.h"

namespace lockstep::xla {
namespace {

/// Numbers of collectives.
using Ordinals = std::set<int64_t>;

/// What a replica has to compute: its results, and the operands of the collectives that it takes part in.
std::vector<Trace::Result> roots_of(const PendingWork& work, const Ordinals& collectives) {
  std::vector<Trace::Result> roots = work.pending().results;
  for (const Value& open : work.device().open_collectives()) {
    if (collectives.count(open->ordinal) > 0) roots.push_back({open, nullptr, nullptr});
  }
  return roots;
}

/// The collectives whose results some replica uses, or that such a collective depends on in some replica.
Ordinals used_collectives_of_all(const std::vector<PendingWork>& works) {
  Ordinals used;
  size_t before = 0;
  do {
    before = used.size();
    for (const PendingWork& work : works) {
      for (const Node* node : collect(roots_of(work, used)).nodes) {
        if (is_collective(*node)) used.insert(node->ordinal);
      }
    }
  } while (used.size() != before);
  return used;
}

/// The collectives among `used` that depend on no other collective, in the order in which the replica traced them.
std::vector<Value> next_collectives(const PendingWork& work, const Ordinals& used) {
  const Trace trace = collect(roots_of(work, used));
  std::vector<char> waits(trace.nodes.size(), 0);
  std::vector<Value> next;
  for (Node* node : trace.nodes) {
    for (const Value& operand : node->operands) {
      if (waits[operand->index] != 0 || is_collective(*operand)) waits[node->index] = 1;
    }
    if (is_collective(*node) && waits[node->index] == 0) next.push_back(Value::reclaim_copy(node));
  }
  std::sort(next.begin(), next.end(), [](const Value& a, const Value& b) { return a->ordinal < b->ordinal; });
  return next;
}

/// Leaves the collectives that all replicas can make now. The one with the smallest number is always among them.
void keep_common(std::vector<std::vector<Value>>& of_replicas) {
  Ordinals common;
  for (const Value& collective : of_replicas[0]) common.insert(collective->ordinal);
  for (const auto& collectives : of_replicas) {
    Ordinals both;
    for (const Value& collective : collectives) {
      if (common.count(collective->ordinal) > 0) both.insert(collective->ordinal);
    }
    common = std::move(both);
  }
  for (auto& collectives : of_replicas) {
    std::erase_if(collectives, [&](const Value& collective) { return common.count(collective->ordinal) == 0; });
  }
}

void execute_alone(const std::vector<Trace::Result>& results, XlaDevice& device) {
  if (results.empty()) return;
  Trace trace = collect(results);
  Trace* only = &trace;
  XlaDevice* where = &device;
  launch({&only, 1}, {&where, 1});
}

void execute_operands(const std::vector<Value>& collectives, XlaDevice& device) {
  std::set<const Node*> seen;
  std::vector<Trace::Result> results;
  for (const Value& collective : collectives) {
    const Value& operand = collective->operands[0];
    if (operand->op != Op::Argument && seen.insert(operand.get()).second)
      results.push_back({operand, nullptr, nullptr});
  }
  execute_alone(results, device);
}

using TracesOfReplicas = std::vector<Trace>;

/// The traces of some collectives, whose operands have been computed, on all replicas.
TracesOfReplicas traces_of(const std::vector<std::vector<Value>>& of_replicas, size_t first, size_t count) {
  TracesOfReplicas traces;
  for (const auto& collectives : of_replicas) {
    std::vector<Trace::Result> results;
    for (size_t i = first; i < first + count; ++i) results.push_back({collectives[i], nullptr, nullptr});
    traces.push_back(collect(std::move(results)));
  }
  return traces;
}

std::optional<TraceDifference> find_difference(const TracesOfReplicas& traces) {
  for (size_t replica = 1; replica < traces.size(); ++replica) {
    if (auto difference = first_difference(traces[0], traces[replica])) return difference;
  }
  return std::nullopt;
}

/// As one program, or one by one if some replica has one operand for several of them.
void execute_collectives(const std::vector<std::vector<Value>>& of_replicas, const std::vector<PendingWork>& works) {
  std::vector<XlaDevice*> devices;
  for (const PendingWork& work : works) devices.push_back(&work.device());
  const auto launch_all = [&](TracesOfReplicas& traces) {
    std::vector<Trace*> all;
    for (Trace& trace : traces) all.push_back(&trace);
    launch(all, devices);
  };
  const size_t count = of_replicas[0].size();
  TracesOfReplicas together = traces_of(of_replicas, 0, count);
  if (!find_difference(together)) return launch_all(together);
  for (size_t i = 0; i < count; ++i) {
    TracesOfReplicas one = traces_of(of_replicas, i, 1);
    const auto difference = find_difference(one);
    LOCKSTEP_CHECK_COLLECTIVE(!difference, "[run] replicas must take part in collectives with equal sizes: replica 0 ",
                              "has ", difference->first, ", another one has ", difference->second);
    launch_all(one);
  }
}

}  // namespace

void execute_in_segments(std::vector<PendingWork>& works) {
  const Ordinals used = used_collectives_of_all(works);
  for (;;) {
    std::vector<std::vector<Value>> collectives;
    for (const PendingWork& work : works) collectives.push_back(next_collectives(work, used));
    keep_common(collectives);
    if (collectives[0].empty()) break;
    for (size_t replica = 0; replica < works.size(); ++replica) {
      execute_operands(collectives[replica], works[replica].device());
    }
    execute_collectives(collectives, works);
  }
  // Nothing is donated: if the program of one replica fails, all are rolled back.
  for (PendingWork& work : works) {
    std::vector<Trace::Result> rest;
    for (const Trace::Result& result : work.pending().results) {
      if (result.value->op != Op::Argument) rest.push_back({result.value, result.layout, nullptr});
    }
    execute_alone(rest, work.device());
  }
  for (PendingWork& work : works) work.executed();
}

}  // namespace lockstep::xla
