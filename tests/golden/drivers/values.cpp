#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/lockstep.h"
#include "tests/golden/drivers.h"
#include "tests/golden/drivers/printed.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"
#include "tests/golden/value.h"
#include "tests/golden/value_nest.h"

namespace lockstep::golden::drivers::values {
namespace {

Value scalar(double value) { return {at::scalar_tensor(value, at::kFloat)}; }
Value number(int64_t value) { return {value}; }
Value text(const char* value) { return {std::string(value)}; }
Value tuple(Values items) { return {TupleValue{std::move(items)}}; }
Value list(Values items) { return {ListValue{std::move(items)}}; }
Value dict(std::vector<std::pair<std::string, Value>> items) { return {DictValue{std::move(items)}}; }

template <class F>
const F& find(const std::map<std::string_view, F>& table, const std::string& name) {
  const auto found = table.find(name);
  if (found == table.end()) throw HarnessError("[values] unknown: " + name);
  return found->second;
}

/// What the function of a `run_returns` case returns in replica `id`.
Value returned(const std::string& name, int id) {
  using Returns = Value (*)(int id);
  static const std::map<std::string_view, Returns> table{
      {"nothing", [](int) { return Value(); }},
      {"id as number", [](int id) { return number(id); }},
      {"same small number", [](int) { return number(5); }},
      {"equal large numbers", [](int) { return number(1000001); }},
      {"same string", [](int) { return text("abc"); }},
      {"different strings", [](int id) { return Value{"s" + std::to_string(id)}; }},
      {"same bool", [](int) { return Value{true}; }},
      {"float by id", [](int id) { return Value{id + 0.5}; }},
      {"numpy", [](int id) { return Value{static_cast<double>(id)}; }},
      {"equal tensors", [](int) { return scalar(1.0); }},
      {"tensors by id", [](int id) { return scalar(id); }},
      {"shapes differ", [](int id) { return Value{at::ones({id + 1})}; }},
      {"dtypes differ", [](int id) { return Value{at::ones({}, id == 0 ? at::kFloat : at::kInt)}; }},
      {"tuple",
       [](int id) {
         return tuple({scalar(id), number(7)});
       }},
      {"namedtuple",
       [](int id) {
         return tuple({scalar(id), number(id)});
       }},
      {"list",
       [](int id) {
         return list({scalar(id), text("x")});
       }},
      {"dict",
       [](int id) {
         return dict({{"a", scalar(id)}, {"b", number(1)}});
       }},
      {"dict order",
       [](int id) {
         return dict({{"b", number(id)}, {"a", number(id)}});
       }},
      {"nested",
       [](int id) {
         return dict({{"a", list({scalar(id), tuple({number(id), Value()})})}});
       }},
      {"empty tuple", [](int) { return tuple({}); }},
      {"empty list", [](int) { return list({}); }},
      {"empty dict", [](int) { return dict({}); }},
      {"lengths differ", [](int id) { return list(Values(id + 1, number(1))); }},
      {"keys differ",
       [](int id) {
         return dict({{"k" + std::to_string(id), number(1)}});
       }},
      {"types differ", [](int id) { return id == 0 ? tuple({number(1)}) : list({number(1)}); }},
      {"leaf and list", [](int id) { return id == 0 ? number(1) : list({number(1)}); }},
      {"none and number", [](int id) { return id == 0 ? Value() : number(1); }},
  };
  return find(table, name)(id);
}

Json run_returns(const Strategy& strategy, const Case& test_case) {
  const std::string name = test_case.text("returns");
  if (name == "nothing") {
    strategy.run([] {});
    return {};
  }
  return to_json(strategy.run([&] { return returned(name, replica_id()); }));
}

/// Makes a distributed value with f(replica) for each replica.
template <class Kind, class F>
Value distributed(int num_replicas, F&& f) {
  Values items;
  for (int i = 0; i < num_replicas; ++i) items.push_back(f(i));
  return {Kind{std::move(items)}};
}

Value per_replica_scalars(int num_replicas) { return distributed<PerReplicaValue>(num_replicas, scalar); }

Value per_replica_numbers(int num_replicas, double step) {
  return distributed<PerReplicaValue>(num_replicas, [&](int i) { return Value{i * step}; });
}

Value mirrored_twos(int num_replicas) {
  return distributed<MirroredValue>(num_replicas, [](int) { return scalar(2.0); });
}

Json run_arguments(const Strategy& strategy, const Case& test_case) {
  using Argument = Value (*)(int num_replicas);
  static const std::map<std::string_view, Argument> table{
      {"number", [](int) { return number(3); }},
      {"tensor", [](int) { return scalar(3.0); }},
      {"none", [](int) { return Value(); }},
      {"per replica", per_replica_scalars},
      {"mirrored", mirrored_twos},
      {"list of per replica",
       [](int n) {
         return list({per_replica_scalars(n), number(7)});
       }},
      {"dict",
       [](int n) {
         return dict({{"a", distributed<PerReplicaValue>(n, number)}, {"b", text("x")}});
       }},
      {"too few components", [](int) { return Value{PerReplicaValue{{scalar(1.0)}}}; }},
  };
  const int num_replicas = strategy.num_replicas_in_sync();
  const Value argument = find(table, test_case.text("argument"))(num_replicas);
  std::vector<Json> seen(num_replicas);
  strategy.run([&](const Value& value) { seen[replica_id()] = to_json(value); }, argument);
  return seen;
}

/// Writes local results; the value has its C++ type, so that the library sees whether it is a leaf.
template <class T>
Json tuple_of(const std::vector<T>& results) {
  Json items = Json::array();
  for (const T& result : results) {
    if constexpr (std::is_same_v<T, Values>) {
      items.push_back(to_json(list(result)));
    } else if constexpr (std::is_same_v<T, std::tuple<Value, Value>>) {
      items.push_back(to_json(tuple({std::get<0>(result), std::get<1>(result)})));
    } else if constexpr (std::is_same_v<T, std::map<std::string, Value>>) {
      items.push_back(to_json(dict({result.begin(), result.end()})));
    } else {
      items.push_back(to_json(Value{result}));
    }
  }
  return {{"tuple", items}};
}

Json local_results(const Strategy& strategy, const Case& test_case) {
  using Dict = std::map<std::string, Value>;
  const std::string name = test_case.text("value");
  const int n = strategy.num_replicas_in_sync();
  const auto of = [&](const auto& value) { return tuple_of(strategy.local_results(value)); };
  if (name == "number") return of(int64_t{3});
  if (name == "string") return of(std::string("abc"));
  if (name == "none") return of(std::monostate());
  if (name == "tensor") return of(at::ones({}));
  if (name == "per replica") {
    return of(PerReplica<at::Tensor>(at::arange(n, at::kFloat).unbind()));
  }
  if (name == "mirrored") return of(Mirrored<at::Tensor>(at::full({n}, 2.0).unbind()));
  if (name == "list") return of(Values{number(1), number(2)});
  if (name == "tuple") return of(std::tuple(number(1), number(2)));
  if (name == "dict") return of(Dict{{"a", number(1)}});
  if (name == "empty") return of(Values{});
  if (name == "list of per replica") return of(Values{per_replica_numbers(n, 1.0)});
  if (name == "tuple of per replica") return of(std::tuple(per_replica_numbers(n, 1.0), per_replica_numbers(n, -1.0)));
  if (name == "nest of per replica") return of(Dict{{"a", per_replica_scalars(n)}, {"b", number(5)}});
  constexpr std::string_view kVariable = "variable ";
  if (!name.starts_with(kVariable)) throw HarnessError("[values] unknown: value=" + name);
  auto scope = strategy.scope();
  return of(Variable(std::stod(name.substr(kVariable.size()))));
}

Json values_from_function(const Strategy& strategy, const Case& test_case) {
  using Function = Value (*)(const ValueContext&);
  static const std::map<std::string_view, Function> table{
      {"number", [](const ValueContext&) { return Value{1.0}; }},
      {"id", [](const ValueContext& c) { return number(c.replica_id_in_sync_group); }},
      {"count", [](const ValueContext& c) { return number(c.num_replicas_in_sync); }},
      {"ratio",
       [](const ValueContext& c) {
         return Value{static_cast<double>(c.replica_id_in_sync_group) / c.num_replicas_in_sync};
       }},
      {"none", [](const ValueContext&) { return Value(); }},
      {"string",
       [](const ValueContext& c) {
         std::ostringstream out;
         out << c;
         return Value{out.str()};
       }},
      {"tensor",
       [](const ValueContext& c) { return Value{at::arange(1, 3, at::kFloat) * (c.replica_id_in_sync_group + 1)}; }},
      {"numpy", [](const ValueContext& c) { return Value{at::arange(2) + c.replica_id_in_sync_group}; }},
      {"shapes differ", [](const ValueContext& c) { return Value{at::ones({c.replica_id_in_sync_group + 1})}; }},
      {"tuple",
       [](const ValueContext& c) {
         return tuple({number(c.replica_id_in_sync_group), number(2)});
       }},
      {"list", [](const ValueContext& c) { return list(Values(2, number(c.replica_id_in_sync_group))); }},
      {"uneven lists", [](const ValueContext& c) { return list(Values(c.replica_id_in_sync_group + 1, number(0))); }},
      {"dict",
       [](const ValueContext& c) {
         return dict({{"a", number(c.replica_id_in_sync_group)}, {"b", text("same")}});
       }},
      {"raises", [](const ValueContext&) -> Value { throw std::domain_error("division by zero"); }},
  };
  return to_json(strategy.distribute_values_from_function(find(table, test_case.text("function"))));
}

/// Regroups the values of a case, one for each replica.
Value regrouped(const Case& test_case, Wrap wrap) {
  const Value parts = value_from_json(test_case.in.at("values"));
  const Value joined = regroup(parts.as<TupleValue>().items, wrap);
  return test_case.text("wrap") == "Mirrored" ? with_mirrored(joined) : joined;
}

Json select_replica(const Case& test_case) {
  const Value value = regrouped(test_case, Wrap::WhereDifferent);
  if (test_case.call == "select_replica_mirrored" && has_per_replica(value)) {
    throw DoesNotCompile("a PerReplica is no Mirrored");
  }
  return to_json(select(test_case.in.at("replica").get<int>(), value));
}

template <class Kind>
Json converted(const Strategy& strategy, const Case& test_case) {
  const Kind value(test_case.in.at("components").get<std::vector<double>>());
  const auto convert = [&]() -> Json { return static_cast<const double&>(value); };
  const std::string where = test_case.text("where");
  if (where == "outside") return convert();
  if (where == "scope") {
    auto scope = strategy.scope();
    return convert();
  }
  if (where != "replica") throw HarnessError("[values] unknown: where=" + where);
  std::vector<Json> answers(strategy.num_replicas_in_sync());
  strategy.run([&] { answers[replica_id()] = convert(); });
  return answers;
}

Json per_replica_operator(const Case& test_case) {
  const PerReplica<double> value(test_case.in.at("components").get<std::vector<double>>());
  const std::string name = test_case.text("operator");
  if (name == "len") return value.size();
  if (name == "iter") return std::vector<double>(value.begin(), value.end());
  if (name == "index") return value[0];
  if (name == "bool") return static_cast<bool>(value);
  if (name == "float" || name == "int") return static_cast<double>(value);
  if (name == "add") return value + 1.0;
  if (name == "sub") return value - 1.0;
  if (name == "mul") return value * 2.0;
  if (name == "div" || name == "truediv") return value / 2.0;
  if (name == "neg") return -value;
  if (name == "less") return value < 1.0;
  if (name == "equal") return value == value;
  if (name == "getattr") throw DoesNotCompile("a PerReplica has no shape");
  throw HarnessError("[values] unknown: operator=" + name);
}

Json run_with_strategy(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  const Strategy strategy = strategy_of(test_case);
  if (test_case.call == "run_returns") return run_returns(strategy, test_case);
  if (test_case.call == "run_arguments") return run_arguments(strategy, test_case);
  if (test_case.call == "local_results") return local_results(strategy, test_case);
  if (test_case.call == "distribute_values_from_function") return values_from_function(strategy, test_case);
  if (test_case.call != "convert_to_tensor") throw HarnessError("[values] unknown call: " + test_case.call);
  if (test_case.text("kind") == "Mirrored") return converted<Mirrored<double>>(strategy, test_case);
  return converted<PerReplica<double>>(strategy, test_case);
}

Json run_alone(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  if (test_case.call == "regroup") {
    return to_json(regrouped(test_case, test_case.in.at("always_wrap") ? Wrap::Always : Wrap::WhereDifferent));
  }
  if (test_case.call.starts_with("select_replica")) return select_replica(test_case);
  if (test_case.call == "printed") return printed(test_case);
  if (test_case.call == "enum") return enumeration(test_case);
  if (test_case.call == "per_replica_operator") return per_replica_operator(test_case);
  throw HarnessError("[values] unknown call: " + test_case.call);
}

}  // namespace

Outcome run(const Case& test_case) {
  return Outcome::of_value(test_case.in.contains("strategy") ? run_with_strategy(test_case) : run_alone(test_case));
}

}  // namespace lockstep::golden::drivers::values
