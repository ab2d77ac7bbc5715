#include "lockstep/xla/engine/segmented_execution.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/xla/engine/launch.h"
#include "lockstep/xla/graph/trace_difference.h"

namespace lockstep::xla {
namespace {

bool is_collective(const Node& node) { return node.op == Op::AllReduce || node.op == Op::AllGather; }

/// The collectives that depend on no other collective, in the order in which the replica traced them.
std::vector<Value> next_collectives(const PendingWork& work) {
  const Trace trace = collect(work.pending().results);
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

void execute_collectives(const std::vector<std::vector<Value>>& of_replicas, const std::vector<PendingWork>& works) {
  std::vector<Trace> traces;
  std::vector<XlaDevice*> devices;
  for (size_t replica = 0; replica < works.size(); ++replica) {
    std::vector<Trace::Result> results;
    for (const Value& collective : of_replicas[replica]) results.push_back({collective, nullptr, nullptr});
    traces.push_back(collect(std::move(results)));
    devices.push_back(&works[replica].device());
    const auto difference = first_difference(traces[0], traces[replica]);
    LOCKSTEP_CHECK_COLLECTIVE(!difference, "[run] replicas must take part in collectives with equal sizes: replica 0 ",
                              "has ", difference->first, ", replica ", replica, " has ", difference->second);
  }
  std::vector<Trace*> all;
  for (Trace& trace : traces) all.push_back(&trace);
  launch(all, devices);
}

}  // namespace

void execute_in_segments(std::vector<PendingWork>& works) {
  for (;;) {
    std::vector<std::vector<Value>> collectives;
    for (const PendingWork& work : works) collectives.push_back(next_collectives(work));
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
