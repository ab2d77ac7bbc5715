#include "tests/golden/variables.h"

#include <algorithm>
#include <array>
#include <sstream>

#include <ATen/ATen.h>

#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden {
namespace {

constexpr std::string_view kLiteral = "literal ";
constexpr std::string_view kTensor = "tensor ";
constexpr std::string_view kPerReplica = "per replica ";
constexpr std::string_view kReplicaId = "replica id";

template <class Enum, size_t N>
Enum enum_of(const std::array<std::string_view, N>& names, const std::string& name) {
  if (name.empty()) return Enum{};
  const auto* const found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw HarnessError("[variable_of] unknown: " + name);
  return static_cast<Enum>(found - names.begin());
}

VariableOptions options_of(const Case& test_case) {
  static constexpr std::array<std::string_view, 4> kSynchronizations{"AUTO", "NONE", "ON_WRITE", "ON_READ"};
  static constexpr std::array<std::string_view, 4> kAggregations{"NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"};
  VariableOptions options;
  options.synchronization = enum_of<VariableSynchronization>(kSynchronizations, test_case.text("synchronization"));
  options.aggregation = enum_of<VariableAggregation>(kAggregations, test_case.text("aggregation"));
  return options;
}

double number_after(std::string_view prefix, std::string_view text) {
  return std::stod(std::string(text.substr(prefix.size())));
}

VariableOperand literal(std::string_view text) {
  const std::string number(text.substr(kLiteral.size()));
  if (number.find('.') == std::string::npos) return VariableOperand(static_cast<int64_t>(std::stoll(number)));
  return VariableOperand(std::stod(number));
}

PerReplica<at::Tensor> per_replica(std::string_view text) {
  std::istringstream numbers{std::string(text.substr(kPerReplica.size()))};
  std::vector<at::Tensor> components;
  for (std::string number; std::getline(numbers, number, ',');) {
    components.push_back(at::scalar_tensor(std::stod(number), at::kFloat));
  }
  return PerReplica<at::Tensor>(components);
}

std::string printed(const Variable& variable) {
  std::ostringstream text;
  text << variable;
  return text.str();
}

}  // namespace

Variable variable_of(const Case& test_case, const Strategy& strategy) {
  const Scope scope = strategy.scope();
  const std::string dtype = test_case.in.value("dtype", "float32");
  return Variable(tensor_from_json(dtype, test_case.in.at("initial")), options_of(test_case));
}

Json copies_json(const Variable& variable) {
  Json copies = Json::array();
  for (const at::Tensor& copy : variable.components()) copies.push_back(plain_json(copy));
  return copies;
}

std::string class_name(const Variable& variable) {
  const std::string text = printed(variable);
  const bool is_one_tensor = text.starts_with("<tf.Variable");
  if (is_one_tensor) return variable.is_distributed() ? "AggregatingVariable" : "ResourceVariable";
  return text.substr(0, text.find(':'));
}

std::vector<std::string> copy_names(const Variable& variable) {
  constexpr std::string_view kBefore = "<tf.Variable '";
  const std::string text = printed(variable);
  std::vector<std::string> names;
  for (size_t at = text.find(kBefore); at != std::string::npos; at = text.find(kBefore, at)) {
    at += kBefore.size();
    names.push_back(text.substr(at, text.find('\'', at) - at));
  }
  return names;
}

VariableOperand operand_in_replica(std::string_view operand, int replica, at::ScalarType dtype) {
  if (operand.starts_with(kLiteral)) return literal(operand);
  if (operand.starts_with(kTensor)) return at::scalar_tensor(number_after(kTensor, operand), dtype);
  if (operand == kReplicaId) return at::scalar_tensor(replica, dtype);
  if (operand == "replica id + 1") return at::scalar_tensor(replica + 1, dtype);
  throw HarnessError("[operand_in_replica] unknown: operand=" + std::string(operand));
}

VariableOperand operand_outside(std::string_view operand) {
  if (operand.starts_with(kLiteral)) return literal(operand);
  if (operand.starts_with(kTensor)) return at::scalar_tensor(number_after(kTensor, operand), at::kFloat);
  if (operand.starts_with(kPerReplica)) return per_replica(operand);
  throw HarnessError("[operand_outside] unknown: operand=" + std::string(operand));
}

const Variable& write(const Variable& variable, std::string_view op, const VariableOperand& value) {
  if (op == "assign") return variable.assign(value);
  if (op == "assign_add") return variable.assign_add(value);
  if (op == "assign_sub") return variable.assign_sub(value);
  throw HarnessError("[write] unknown: op=" + std::string(op));
}

}  // namespace lockstep::golden
