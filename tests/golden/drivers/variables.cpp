#include "tests/golden/variables.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/replica_context.h"
#include "tests/golden/drivers.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden::drivers::variables {
namespace {

Variable scalar_variable(double initial, const std::string& name) {
  return Variable(at::scalar_tensor(initial, at::kFloat), {.name = name});
}

/// Writes what each replica returned as a list.
Json list_of(const PerReplica<bool>& values) {
  Json list = Json::array();
  for (bool value : values) list.push_back(value);
  return list;
}

Json create(const Strategy& strategy, const Case& test_case) {
  const Variable variable = variable_of(test_case, strategy);
  return {{"type", class_name(variable)},
          {"name", copy_names(variable).at(0)},
          {"trainable", variable.trainable()},
          {"copies", copies_json(variable)}};
}

Json dtype(const Strategy& strategy, const Case& test_case) {
  const Variable variable = variable_of(test_case, strategy);
  const std::string then = test_case.text("then");
  if (then == "each replica assigns id + 1") {
    strategy.run([&] { variable.assign(at::scalar_tensor(replica_id() + 1, variable.dtype())); });
  } else if (then == "assign 7 in scope") {
    const Scope scope = strategy.scope();
    variable.assign(7);
  } else if (then != "nothing") {
    throw HarnessError("[variables] unknown: then=" + then);
  }
  return {{"copies", copies_json(variable)}, {"read", to_json(variable.read_value())}};
}

/// Makes the variables of a list such as "Variable(1.0); in name scope outer: Variable(4.0, name=d)". There are no name
/// scopes in C++: a name is written out.
Json names(const Strategy& strategy, const Case& test_case) {
  static const std::regex pattern(R"((in name scope (\w+): )?Variable\(([\d.]+)(, name=(\w+))?\))");
  const std::string created = test_case.text("created");
  const Scope scope = strategy.scope();
  Json result = Json::object();
  char key = 'a';
  for (std::sregex_iterator one(created.begin(), created.end(), pattern), end; one != end; ++one, ++key) {
    const std::smatch& match = *one;
    const std::string name = match[5].matched ? match[5].str() : VariableOptions().name;
    const std::string full_name = match[2].matched ? match[2].str() + "/" + name : name;
    result[std::string(1, key)] = copy_names(scalar_variable(std::stod(match[3]), full_name));
  }
  return result;
}

Json create_inside_run(const Strategy& strategy, const Case& test_case) {
  const Json initial = test_case.field("initial");
  const bool mismatching = test_case.text("name") == "a on replica 0, z elsewhere";
  std::atomic<int> calls = 0;
  std::vector<std::optional<Variable>> made(strategy.num_replicas_in_sync());
  const auto make = [&] {
    ++calls;
    const std::string name = mismatching ? (replica_id() == 0 ? "a" : "z") : test_case.text("name");
    const double value = initial.is_number() ? initial.get<double>() : replica_id() + 1.0;
    return *(made[replica_id()] = scalar_variable(value, name));
  };
  const Variable variable = strategy.run(make);
  if (mismatching) return calls.load();
  Json result = {{"names", copy_names(variable)}, {"copies", copies_json(variable)}};
  if (!initial.is_number()) return result;
  result["calls"] = calls.load();
  result["same_object"] =
      std::all_of(made.begin(), made.end(), [&](const auto& own) { return own && own->is_same(variable); });
  result["type"] = class_name(variable);
  return result;
}

Json create_inside_merge(const Strategy& strategy, const Case& test_case) {
  int created = 0;
  const Variable variable = strategy.run([&] {
    return get_replica_context().merge_call([&](const Strategy&) {
      ++created;
      return scalar_variable(test_case.in.at("initial"), test_case.text("name"));
    });
  });
  return {{"created", created}, {"type", class_name(variable)}, {"names", copy_names(variable)}};
}

Json random_initial(const Strategy& strategy) {
  const Scope scope = strategy.scope();
  const Variable variable(at::randn({3}));
  const at::Tensor first = variable.components()[0];
  return {{"equal", list_of(strategy.run([&] { return variable.value().equal(first); }))}};
}

Json created_in_scope(const Strategy& strategy) {
  const Variable outside = scalar_variable(1, "outside");
  const Scope scope = strategy.scope();
  const Variable inside = scalar_variable(1, "inside");
  const StrategyExtended extended = strategy.extended();
  return {{"in_scope", extended.variable_created_in_scope(inside)},
          {"outside", extended.variable_created_in_scope(outside)},
          {"type_outside", class_name(outside)},
          {"worker_devices", extended.worker_devices()},
          {"parameter_devices", extended.parameter_devices()}};
}

Variable variable_in_scope(const Strategy& strategy) {
  const Scope scope = strategy.scope();
  return scalar_variable(1, "v");
}

Json as_argument(const Strategy& strategy) {
  const Variable variable = variable_in_scope(strategy);
  return list_of(strategy.run([&](const Variable& argument) { return argument.is_same(variable); }, variable));
}

Json as_result(const Strategy& strategy) {
  const Variable variable = variable_in_scope(strategy);
  const Variable result = strategy.run([&] { return variable; });
  return {{"same", result.is_same(variable)}, {"type", class_name(result)}};
}

Json handle(const Strategy& strategy, const Case& test_case) {
  const Variable variable = variable_in_scope(strategy);
  const std::string where = test_case.text("where");
  const auto has_handle = [&] { return variable.handle().defined(); };
  if (where == "replica") return list_of(strategy.run(has_handle));
  if (where == "outside") return has_handle();
  const Scope scope = strategy.scope();
  return has_handle();
}

/// Evaluates "i", "i+1" or "2".
int64_t evaluate(const std::string& expression, int id) {
  if (!expression.starts_with('i')) return std::stoll(expression);
  return id + (expression.size() > 1 ? std::stoll(expression.substr(2)) : 0);
}

/// Makes the rows of a text such as "replica i: rows i and i+1, value i+2".
IndexedSlices rows_of(const std::string& text, int id) {
  static const std::regex pattern(R"(rows (\S+) and ([^,]+), value (\S+))");
  std::smatch match;
  if (!std::regex_search(text, match, pattern)) throw HarnessError("[variables] unknown: rows=" + text);
  const auto value = static_cast<float>(evaluate(match[3], id));
  return {at::tensor({evaluate(match[1], id), evaluate(match[2], id)}), at::tensor({value, value}), {3}};
}

Json scatter(const Strategy& strategy, const Case& test_case) {
  static const std::map<std::string, const Variable& (Variable::*)(const IndexedSlices&) const> kOps{
      {"scatter_add", &Variable::scatter_add},      {"scatter_sub", &Variable::scatter_sub},
      {"scatter_mul", &Variable::scatter_mul},      {"scatter_div", &Variable::scatter_div},
      {"scatter_min", &Variable::scatter_min},      {"scatter_max", &Variable::scatter_max},
      {"scatter_update", &Variable::scatter_update}};
  const Variable variable = variable_of(test_case, strategy);
  const auto op = kOps.at(test_case.text("op"));
  const std::string rows = test_case.text("rows");
  if (test_case.text("where") == "replica") {
    strategy.run([&] { (variable.*op)(rows_of(rows, replica_id())); });
  } else {
    const Scope scope = strategy.scope();
    (variable.*op)(rows_of(rows, 0));
  }
  return {{"copies", copies_json(variable)}};
}

}  // namespace

Outcome run(const Case& test_case) {
  using Call = std::function<Json(const Strategy&, const Case&)>;
  static const std::map<std::string, Call> kCalls{
      {"create", create},
      {"dtype", dtype},
      {"names", names},
      {"create_inside_run", create_inside_run},
      {"create_inside_merge", create_inside_merge},
      {"random_initial", [](const Strategy& s, const Case&) { return random_initial(s); }},
      {"variable_created_in_scope", [](const Strategy& s, const Case&) { return created_in_scope(s); }},
      {"variable_as_argument", [](const Strategy& s, const Case&) { return as_argument(s); }},
      {"variable_as_result", [](const Strategy& s, const Case&) { return as_result(s); }},
      {"handle", handle},
      {"scatter", scatter}};
  const auto call = kCalls.find(test_case.call);
  if (call == kCalls.end()) throw HarnessError("[variables] unknown call: " + test_case.call);
  const LogicalCpus cpus(test_case);
  return Outcome::of_value(call->second(strategy_of(test_case), test_case));
}

}  // namespace lockstep::golden::drivers::variables
