#include "lockstep/xla/engine/apart.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

bool is_collective(const Node& node) { return node.op == Op::AllReduce || node.op == Op::AllGather; }

/// The collectives that wait for no other one, in the order in which the replica came to them.
std::vector<Value> next_collectives(const Work& work) {
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

void execute_alone(const std::vector<Trace::Result>& results, Place& place) {
  if (results.empty()) return;
  Trace trace = collect(results);
  Trace* only = &trace;
  Place* where = &place;
  launch({&only, 1}, {&where, 1});
}

void execute_operands(const std::vector<Value>& collectives, Place& place) {
  std::set<const Node*> seen;
  std::vector<Trace::Result> results;
  for (const Value& collective : collectives) {
    const Value& operand = collective->operands[0];
    if (operand->op != Op::Argument && seen.insert(operand.get()).second)
      results.push_back({operand, nullptr, nullptr});
  }
  execute_alone(results, place);
}

void execute_collectives(const std::vector<std::vector<Value>>& of_replicas, const std::vector<Work>& works) {
  std::vector<Trace> traces;
  std::vector<Place*> places;
  for (size_t replica = 0; replica < works.size(); ++replica) {
    std::vector<Trace::Result> results;
    for (const Value& collective : of_replicas[replica]) results.push_back({collective, nullptr, nullptr});
    traces.push_back(collect(std::move(results)));
    places.push_back(&works[replica].place());
    const auto difference = first_difference(traces[0], traces[replica]);
    LOCKSTEP_CHECK_COLLECTIVE(!difference, "[run] replicas must take part in collectives with equal sizes: replica 0 ",
                              "has ", difference->first, ", replica ", replica, " has ", difference->second);
  }
  std::vector<Trace*> all;
  for (Trace& trace : traces) all.push_back(&trace);
  launch(all, places);
}

}  // namespace

void execute_apart(std::vector<Work>& works) {
  for (;;) {
    std::vector<std::vector<Value>> collectives;
    for (const Work& work : works) collectives.push_back(next_collectives(work));
    if (collectives[0].empty()) break;
    for (size_t replica = 0; replica < works.size(); ++replica) {
      execute_operands(collectives[replica], works[replica].place());
    }
    execute_collectives(collectives, works);
  }
  for (Work& work : works) {
    std::vector<Trace::Result> rest;
    for (const Trace::Result& result : work.pending().results) {
      if (result.value->op != Op::Argument) rest.push_back(result);
    }
    execute_alone(rest, work.place());
    work.executed();
  }
}

}  // namespace lockstep::xla
