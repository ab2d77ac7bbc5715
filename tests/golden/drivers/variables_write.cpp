#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/replica_context.h"
#include "tests/golden/drivers.h"
#include "tests/golden/strategies.h"
#include "tests/golden/variables.h"

namespace lockstep::golden::drivers::variables_write {
namespace {

/// Writes in every replica and returns what each then reads from what came back. If the variable is stored once, one
/// answer stands for all that are equal.
Json write_in_replicas(const Case& test_case, const Strategy& strategy, const Variable& variable) {
  const std::string operand = test_case.text("operand");
  const auto returned = strategy.run([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    const VariableOperand value = operand_in_replica(operand, id, variable.dtype());
    return write(variable, test_case.text("op"), value).read_value();
  });
  std::vector<Json> values;
  for (const at::Tensor& value : returned) values.push_back(plain_json(value));
  if (variable.components().size() == 1) values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// Writes outside of replicas and returns the word for what came back.
Json write_outside(const Case& test_case, const Variable& variable) {
  const Variable& returned = write(variable, test_case.text("op"), operand_outside(test_case.text("operand")));
  return returned.is_same(variable) ? "Variable" : "another variable";
}

void write_in_update(const Case& test_case, const Strategy& strategy, const Variable& variable) {
  const VariableOperand operand = operand_outside(test_case.text("operand"));
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < variable.components().size(); ++i) parts.push_back(operand.at(static_cast<int>(i)));
  const auto write_copy = [&](const at::Tensor&, const at::Tensor& part) {
    write(variable, test_case.text("op"), part);
  };
  const Scope scope = strategy.scope();
  if (operand.is_per_replica()) {
    strategy.extended().update(variable, write_copy, PerReplica<at::Tensor>(parts));
  } else {
    strategy.extended().update(variable, write_copy, parts[0]);
  }
}

}  // namespace

Outcome run(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  const Strategy strategy = strategy_of(test_case);
  const Variable variable = variable_of(test_case, strategy);
  const std::string where = test_case.text("where");
  Json result = Json::object();
  if (where == "replica") {
    result["returned"] = write_in_replicas(test_case, strategy, variable);
  } else if (where == "scope") {
    const Scope scope = strategy.scope();
    result["returned"] = write_outside(test_case, variable);
  } else if (where == "outside") {
    result["returned"] = write_outside(test_case, variable);
  } else if (where == "update") {
    write_in_update(test_case, strategy, variable);
  } else {
    throw HarnessError("[variables_write] unknown: where=" + where);
  }
  result["copies"] = copies_json(variable);
  return Outcome::of_value(result);
}

}  // namespace lockstep::golden::drivers::variables_write
