#include "tests/golden/drivers/nesting.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/golden/strategies.h"

namespace lockstep::golden::drivers::contexts {
namespace {

/// Runs `f` at a place: "" for no scope, "scope", "replica", "merge" or "update" of a strategy.
Json at_place(const Strategy& strategy, const std::string& place, const std::function<Json()>& f) {
  if (place.empty()) return f();
  if (place == "replica") {
    Json answer;
    strategy.run([&] { answer = f(); });
    return answer;
  }
  if (place == "merge") {
    Json answer;
    strategy.run([&] { get_replica_context().merge_call([&](const Strategy&) { answer = f(); }); });
    return answer;
  }
  if (place != "scope") throw HarnessError("[contexts] unknown: place=" + place);
  auto scope = strategy.scope();
  return f();
}

/// "set_strategy WHO, ... inside PLACE": sets one strategy after the other and returns whether each became current.
/// WHO is same, other or none; "twice" sets two strategies and then none. Inside of a place, the strategy of the place
/// is the same one.
Json set_strategies(const std::string& name) {
  const OneDeviceStrategy strategy("CPU:0");
  const OneDeviceStrategy other("CPU:0");
  std::string text = name;
  std::string place;
  static const std::regex inside("(.*) (?:inside|in) (?:a |the )?(scope|replica|merge)(?: function)?");
  if (std::smatch match; std::regex_match(name, match, inside)) {
    place = match[2];
    text = match[1].str();
  }
  Json seen = Json::array();
  const auto set = [&](const std::optional<Strategy>& one) {
    set_strategy(one);
    seen.push_back(one ? get_strategy() == *one : !has_strategy());
  };
  return at_place(strategy, place, [&] {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      if (word == "same") set(strategy);
      if (word == "other") set(other);
      if (word == "none") set(std::nullopt);
      if (word == "twice") {
        set(strategy);
        set(other);
        set(std::nullopt);
      }
    }
    if (seen.empty()) throw HarnessError("[contexts] unknown: set_strategy " + text);
    set_strategy(std::nullopt);
    return seen;
  });
}

/// "WHAT scope left open": the strategy's scope ends before a scope that began inside of it.
Json leave_open(const std::string& what) {
  if (what != "device") throw DoesNotCompile("there are no scopes of variables, creators or resources");
  const OneDeviceStrategy strategy("CPU:0");
  auto scope = std::make_unique<Scope>(strategy);
  const DeviceScope device("CPU:0");
  scope.reset();
  return {};
}

/// "WHAT loop in a function": the sum of all elements, one step after the other.
Json sum_in_loop(const std::string& kind) {
  if (kind == "enumerate") throw DoesNotCompile("a loop keeps a counter of its own");
  const MirroredStrategy strategy(cpu_names(2));
  const auto dataset = strategy.distribute_dataset(data::range(4).batch(2));
  int64_t sum = 0;
  const auto add = [&](const PerReplica<at::Tensor>& batch) {
    sum += strategy.reduce("sum", batch, 0).item<int64_t>();
  };
  if (kind == "while") {
    auto iterator = dataset.iterator();
    while (const auto batch = iterator.get_next_as_optional()) add(*batch);
  } else {
    for (const auto& batch : dataset) add(batch);
  }
  return sum;
}

/// "run args WHAT": only an empty list can be written in C++; its arguments are those of `run`.
Json run_with(const std::string& what) {
  if (what != "empty") throw DoesNotCompile("the arguments of run are its own arguments");
  return OneDeviceStrategy("CPU:0").run([] { return 0; }).value();
}

/// "exception in replica N", or in all of them.
Json throw_in_replica(const std::string& which) {
  const bool in_all = which.find_first_of("0123456789") == std::string::npos;
  const int thrower = in_all ? -1 : std::stoi(which.substr(which.find_first_of("0123456789")));
  MirroredStrategy(cpu_names(std::max(2, thrower + 1))).run([&] {
    const int replica = get_replica_context().replica_id_in_sync_group();
    LOCKSTEP_CHECK_VALUE(!in_all && replica != thrower, "from replica ", replica);
  });
  return {};
}

Strategy strategy_named(const std::string& name) {
  if (name.starts_with("Mirrored")) return MirroredStrategy(cpu_names(2));
  if (name.starts_with("CentralStorage")) return CentralStorageStrategy(cpu_names(2));
  if (name.empty() || name.starts_with("OneDevice")) return OneDeviceStrategy("CPU:0");
  throw HarnessError("[contexts] unknown: strategy=" + name);
}

Json copy_strategy(const std::string& name) {
  const Strategy strategy = strategy_named(name);
  const Strategy copy = strategy;  // NOLINT: the copy is what is looked at
  return copy == strategy ? "the same strategy" : "another strategy";
}

/// A strategy of the same kind on the same devices is what a deep copy is.
Json deep_copy_strategy(const std::string& name) {
  if (name.find("default") != std::string::npos) throw DoesNotCompile("the default strategy has no constructor");
  const Strategy strategy = strategy_named(name);
  const Strategy again = strategy_named(name);
  const bool is_equal = again.extended().worker_devices() == strategy.extended().worker_devices();
  return again == strategy || !is_equal ? "not a deep copy" : again.type_name();
}

/// Scopes of several strategies, one inside the other: "same scope twice", "scope inside scope of another strategy".
Json nest_scopes(const std::string& name) {
  const OneDeviceStrategy strategy("CPU:0");
  const OneDeviceStrategy another("CPU:0");
  const bool is_other = name.find("other") != std::string::npos;
  const bool is_default = name.find("default") != std::string::npos;
  auto outer = strategy.scope();
  const Strategy second =
      is_default ? Strategy(detail::default_strategy().shared_from_this()) : Strategy(is_other ? another : strategy);
  auto inner = second.scope();
  return "entered";
}

/// What the name of a case describes: a pattern, and what runs it with the part of the name that varies.
struct Nesting {
  const char* pattern;
  Json (*run)(const std::string& part);
};

}  // namespace

Json run_nesting(const Case& test_case) {
  static const std::vector<Nesting> kNestings{
      {"(?:experimental_)?set_strategy (.*)", set_strategies},
      {"(.*) scope left open", leave_open},
      {"(.*) left (?:twice|once too often)",
       [](const std::string&) -> Json { throw DoesNotCompile("a scope is left by its destructor, once"); }},
      {"(\\w+)(?: loop)?(?: over a dataset)? in a function", sum_in_loop},
      {"run (?:kw)?args (.*)", run_with},
      {"exceptions? in (.*)", throw_in_replica},
      {"copy(?: of )?(.*)", copy_strategy},
      {"deepcopy(?: of )?(.*)", deep_copy_strategy},
      {"(.*scope.*)", nest_scopes},
  };
  const LogicalCpus cpus(test_case);
  const std::string name = test_case.text("case");
  for (const Nesting& nesting : kNestings) {
    std::smatch match;
    if (std::regex_match(name, match, std::regex(nesting.pattern))) return nesting.run(match[1]);
  }
  throw HarnessError("[contexts] unknown: case=" + name);
}

}  // namespace lockstep::golden::drivers::contexts
