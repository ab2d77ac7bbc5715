#include <ATen/ATen.h>

#include "lockstep/strategy/context.h"
#include "lockstep/strategy/replica_context.h"
#include "tests/golden/drivers.h"
#include "tests/golden/strategies.h"
#include "tests/golden/variables.h"

namespace lockstep::golden::drivers::variables_read {
namespace {

at::Tensor read(const Variable& variable, const std::string& how) {
  if (how == "value") return variable.value();
  if (how == "read_value" || how == "numpy") return variable.read_value();
  if (how == "tensor") return at::Tensor(variable);
  if (how == "plus one") return variable + 1;
  throw HarnessError("[variables_read] unknown: how=" + how);
}

void prepare(const Case& test_case, const Strategy& strategy, const Variable& variable) {
  const std::string before = test_case.text("before");
  if (before.empty()) return;
  if (before != "each replica adds its id") throw HarnessError("[variables_read] unknown: before=" + before);
  strategy.run([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    variable.assign_add(at::scalar_tensor(id, variable.dtype()));
  });
}

}  // namespace

Outcome run(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  const Strategy strategy = strategy_of(test_case);
  const Variable variable = variable_of(test_case, strategy);
  prepare(test_case, strategy, variable);
  const std::string how = test_case.text("how");
  const Json result = run_at(test_case.text("where"), strategy, [&] { return read(variable, how); });
  return Outcome::of_value(how == "numpy" ? result["data"][0] : result);
}

}  // namespace lockstep::golden::drivers::variables_read
