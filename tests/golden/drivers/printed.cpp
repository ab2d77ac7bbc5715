#include "tests/golden/drivers/printed.h"

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/cluster/tpu/device_assignment.h"
#include "lockstep/lockstep.h"
#include "tests/golden/pipelines.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"
#include "tests/golden/value.h"
#include "tests/golden/value_nest.h"

namespace lockstep::golden::drivers::values {
namespace {

template <class T>
Json both_forms(const T& value) {
  return {{"str", str(value)}, {"repr", repr(value)}};
}

/// The text of each component in "PerReplica:{\n  0: 1,\n  1: 2.5\n}".
std::vector<std::string> components_in(const std::string& text) {
  static const std::regex start("(?:^|\n)  \\d+: ");
  std::vector<std::string> components;
  const size_t begin = text.find('{') + 1;
  const std::string body = text.substr(begin, text.rfind("\n}") - begin);
  for (std::sregex_iterator one(body.begin(), body.end(), start), end; one != end; ++one) {
    const auto from = static_cast<size_t>(one->position() + one->length());
    auto next = std::next(one);
    const size_t to = next == end ? body.size() : static_cast<size_t>(next->position()) - 1;  // without the comma
    components.push_back(body.substr(from, to - from));
  }
  return components;
}

/// The tensor of "<tf.Tensor: shape=(2,), dtype=int32, numpy=array([1, 2], dtype=int32)>".
at::Tensor tensor_in(const std::string& text) {
  static const std::regex pattern(R"(<tf.Tensor: shape=\((.*?)\), dtype=(\w+), numpy=\s*([\s\S]*)>)");
  std::smatch match;
  if (!std::regex_match(text, match, pattern)) throw HarnessError("[printed] not a tensor: " + text);
  std::vector<int64_t> shape;
  std::vector<double> numbers;
  const std::string sizes = match[1];
  const std::string elements = std::regex_replace(match[3].str(), std::regex(R"(, dtype=\w+|array)"), "");
  static const std::regex number(R"(-?\d[\d.e+-]*)");
  for (std::sregex_iterator one(sizes.begin(), sizes.end(), number), end; one != end; ++one) {
    shape.push_back(std::stoll(one->str()));
  }
  for (std::sregex_iterator one(elements.begin(), elements.end(), number), end; one != end; ++one) {
    numbers.push_back(std::stod(one->str()));
  }
  return at::tensor(numbers, at::kDouble).to(scalar_type(match[2].str())).reshape(shape);
}

/// A component as Python's repr writes it.
Value component_in(const std::string& text) {
  if (text == "None") return {};
  if (text == "True" || text == "False") return {text == "True"};
  if (text.starts_with("<tf.Tensor")) return {tensor_in(text)};
  if (text.starts_with('\'')) return {text.substr(1, text.size() - 2)};
  const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_whole ? Value{int64_t{std::stoll(text)}} : Value{std::stod(text)};
}

/// Prints a PerReplica or Mirrored of the components that the case shows.
template <template <class> class Kind>
Json printed_components(const Case& test_case) {
  Values components;
  const std::string shown = test_case.out.at("repr");
  for (const std::string& text : components_in(shown)) components.push_back(component_in(text));
  return both_forms(Kind<Value>(components));
}

/// Prints the enumerator whose name the case shows.
template <class T>
Json printed_enumerator(const Case& test_case, std::initializer_list<T> all) {
  const std::string shown = test_case.out.at("str");
  const std::string name = shown.substr(shown.rfind('.') + 1);
  for (const T& one : all) {
    const std::string own = repr(one);
    if (own.substr(own.rfind('.') + 1) == name) return both_forms(one);
  }
  throw HarnessError("[printed] no such enumerator: " + shown);
}

/// Prints the class of variable that is asked for, made under the strategy that has it.
Json printed_variable(const std::string& name) {
  const bool on_read = name == "SyncOnReadVariable";
  const Strategy strategy = name == "AggregatingVariable" ? Strategy(CentralStorageStrategy(cpu_names(2)))
                            : name == "ResourceVariable"  ? Strategy(OneDeviceStrategy("CPU:0"))
                                                          : Strategy(MirroredStrategy(cpu_names(2)));
  auto scope = strategy.scope();
  return both_forms(
      Variable(1.0, {.synchronization = on_read ? VariableSynchronization::OnRead : VariableSynchronization::OnWrite,
                     .aggregation = VariableAggregation::Sum}));
}

Json printed_spec(const std::string& name) {
  const MirroredStrategy strategy(cpu_names(2));
  const auto batches = data::range(4).batch(2);
  if (name.starts_with("dataset")) return both_forms(strategy.distribute_dataset(batches).element_spec());
  const auto from_function = strategy.distribute_datasets_from_function([&](const InputContext&) { return batches; });
  return both_forms(from_function.element_spec());
}

/// Names the values of an enumeration that is made from its name.
template <class T>
Json names_of(std::initializer_list<typename T::Kind> kinds) {
  Json names = Json::object();
  for (typename T::Kind kind : kinds) {
    const std::string name(T(kind).name());
    names[name] = T(std::string_view(name)) == kind ? name : "";
  }
  return names;
}

/// Names the values of a plain enumeration, which prints as `Type.NAME`.
template <class T>
Json numbers_of(std::initializer_list<T> values) {
  Json numbers = Json::object();
  for (T value : values) {
    const std::string own = repr(value);
    numbers[own.substr(own.find('.') + 1)] = static_cast<int>(value);
  }
  return numbers;
}

/// The name of a mode, as the library prints it among the options.
std::string mode_name(InputReplicationMode mode) {
  static const std::regex pattern("<InputReplicationMode\\.(\\w+):");
  const std::string options = repr(InputOptions{.replication_mode = mode});
  std::smatch match;
  return std::regex_search(options, match, pattern) ? match[1].str() : options;
}

constexpr std::initializer_list<VariableAggregation> kAggregations{VariableAggregation::None, VariableAggregation::Sum,
                                                                   VariableAggregation::Mean,
                                                                   VariableAggregation::OnlyFirstReplica};
constexpr std::initializer_list<VariableSynchronization> kSynchronizations{
    VariableSynchronization::Auto, VariableSynchronization::None, VariableSynchronization::OnWrite,
    VariableSynchronization::OnRead};

Json printed_options(const std::string& name) {
  if (name == "InputOptions") return both_forms(InputOptions());
  if (name == "RunOptions") return both_forms(RunOptions());
  throw HarnessError("[printed] unknown: value=" + name);
}

}  // namespace

Json printed(const Case& test_case) {
  const std::string name = test_case.text("value");
  const auto is_one = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  if (name.ends_with("element_spec")) return printed_spec(name);
  if (name == "InputContext") return both_forms(InputContext{3, 1, 4});
  if (name == "ValueContext") return both_forms(ValueContext{2, 4});
  if (name.ends_with("Options")) return printed_options(name);
  if (name.ends_with("Variable")) return printed_variable(name);
  if (name == "VariableAggregation") return printed_enumerator(test_case, kAggregations);
  if (name == "VariableSynchronization") return printed_enumerator(test_case, kSynchronizations);
  if (name == "ReduceOp") {
    return printed_enumerator<ReduceOp>(
        test_case, {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product});
  }
  if (name == "CommunicationImplementation" || name == "CollectiveCommunication") {
    using C = CommunicationImplementation;
    return printed_enumerator<C>(test_case, {C::Auto, C::Ring, C::Nccl});
  }
  if (is_one("PerReplica")) return printed_components<PerReplica>(test_case);
  if (is_one("Mirrored")) return printed_components<Mirrored>(test_case);
  throw HarnessError("[printed] unknown: value=" + name);
}

Json enumeration(const Case& test_case) {
  const std::string name = test_case.text("name");
  if (name == "ReduceOp")
    return names_of<ReduceOp>({ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product});
  if (name == "CommunicationImplementation" || name == "CollectiveCommunication") {
    using C = CommunicationImplementation;
    return names_of<C>({C::Auto, C::Ring, C::Nccl});
  }
  if (name == "SHARD_HINT") return data::kShardHint;
  if (name == "VariableAggregation") return numbers_of(kAggregations);
  if (name == "VariableSynchronization") return numbers_of(kSynchronizations);
  if (name == "InputReplicationMode") {
    return {{"PER_WORKER", mode_name(InputReplicationMode::PerWorker)},
            {"PER_REPLICA", mode_name(InputReplicationMode::PerReplica)}};
  }
  if (name == "DeviceOrderMode") {
    using Mode = tpu::DeviceOrderMode;
    return {{"AUTO", static_cast<int>(Mode::Auto)},
            {"RING", static_cast<int>(Mode::Ring)},
            {"MESH", static_cast<int>(Mode::Mesh)}};
  }
  if (name != "AutoShardPolicy") throw HarnessError("[enumeration] unknown: name=" + name);
  Json numbers = Json::object();
  for (const char* policy : {"OFF", "AUTO", "FILE", "DATA", "HINT"}) {
    numbers[policy] = static_cast<int>(policy_named(policy));
  }
  return numbers;
}

}  // namespace lockstep::golden::drivers::values
