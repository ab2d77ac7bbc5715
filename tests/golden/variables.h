#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/variable/variable.h"
#include "tests/golden/harness.h"

/// What the three drivers of variables share.
namespace lockstep::golden {

/// Makes the variable of a case under its strategy: its `synchronization`, `aggregation`, `dtype` and `initial` value.
Variable variable_of(const Case& test_case, const Strategy& strategy);

/// Returns the values of all copies.
Json copies_json(const Variable& variable);

/// Returns TensorFlow's word for the class of a variable: what is printed before its copies; or, for one that prints as
/// a single tensor, AggregatingVariable where several replicas share it, else ResourceVariable.
std::string class_name(const Variable& variable);

/// Returns the names of all copies, as printed.
std::vector<std::string> copy_names(const Variable& variable);

/// Returns what a replica assigns by an operand such as "literal 5.0", "tensor 5.0" or "replica id + 1".
VariableOperand operand_in_replica(std::string_view operand, int replica, at::ScalarType dtype);

/// Returns what is assigned outside of replicas by "literal 6.0", "tensor 2.0" or "per replica 2,3".
VariableOperand operand_outside(std::string_view operand);

/// Calls "assign", "assign_add" or "assign_sub".
const Variable& write(const Variable& variable, std::string_view op, const VariableOperand& value);

}  // namespace lockstep::golden
