#pragma once

#include <string>
#include <vector>

#include "lockstep/strategy/strategy.h"
#include "lockstep/value/distributed.h"
#include "lockstep/value/indexed_slices.h"
#include "tests/golden/harness.h"
#include "tests/golden/tensors.h"

/// What drivers of cases with strategies share.
namespace lockstep::golden {

/// Has at least four logical CPUs, and one for each replica or device of a case, for as long as it lives.
class LogicalCpus {
 public:
  explicit LogicalCpus(const Case& test_case);
  ~LogicalCpus();
  LogicalCpus(const LogicalCpus&) = delete;
  LogicalCpus& operator=(const LogicalCpus&) = delete;
};

/// Returns "CPU:0" to "CPU:<count - 1>".
std::vector<std::string> cpu_names(int count);

/// Makes the strategy that a case names: Mirrored or CentralStorage on `replicas` logical CPUs, OneDevice on the first,
/// or the default one for "Default" and "None".
Strategy strategy_of(const Case& test_case);

/// Returns whether a case's strategy has replicas with values of their own, be it one: not OneDevice nor the default.
bool has_value_for_each_replica(const Case& test_case);

/// Writes what `run` returned; a bare value is written as itself.
Json to_json(const PerReplica<at::Tensor>& value);
Json to_json(const PerReplica<IndexedSlices>& value);
/// Writes one copy as itself, several as `{"mirrored": [...]}`.
Json to_json(const Mirrored<at::Tensor>& value);
Json to_json(const Mirrored<IndexedSlices>& value);
Json to_json(const IndexedSlices& value);

/// Returns the elements of a tensor as they stand in a list: a number for a scalar, else a list of them.
Json plain_json(const at::Tensor& tensor);

/// Returns the number of the replica that calls it.
int replica_id();

/// Calls `f` where the case says (`where`): in every replica, in the strategy's scope, or outside of both.
template <class F>
Json run_at(const std::string& where, const Strategy& strategy, F&& f) {
  if (where == "replica") return to_json(strategy.run(f));
  if (where == "outside") return to_json(f());
  if (where != "scope") throw HarnessError("[run_at] unknown: where=" + where);
  const Scope scope = strategy.scope();
  return to_json(f());
}

}  // namespace lockstep::golden
