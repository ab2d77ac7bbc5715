#include "tests/golden/value_nest.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/value/print.h"

namespace lockstep::golden {
namespace {

using Parts = std::span<const Value* const>;
using Items = std::map<std::string, Value>;

template <class T>
Value value_of(const PerReplica<T>& grouped) {
  if (grouped.is_bare()) return {grouped[0]};
  PerReplicaValue value;
  for (const T& component : grouped) value.items.push_back({component});
  return {std::move(value)};
}

template <class T>
Value value_of(const PerReplica<std::optional<T>>& grouped) {
  const auto one = [](const std::optional<T>& item) { return item ? Value{*item} : Value{}; };
  if (grouped.is_bare()) return one(grouped[0]);
  PerReplicaValue value;
  for (const auto& component : grouped) value.items.push_back(one(component));
  return {std::move(value)};
}

template <class T>
Value regroup_leaves(Parts parts, Wrap wrap) {
  std::vector<T> leaves;
  for (const Value* part : parts) leaves.push_back(part->as<T>());
  return value_of(regroup(leaves, wrap));
}

template <class T>
Value regroup_optionals(Parts parts, Wrap wrap) {
  std::vector<std::optional<T>> leaves;
  for (const Value* part : parts) {
    leaves.push_back(part->is<std::monostate>() ? std::nullopt : std::optional<T>(part->as<T>()));
  }
  return value_of(regroup(leaves, wrap));
}

template <class Sequence>
Value regroup_sequences(Parts parts, Wrap wrap) {
  std::vector<Values> sequences;
  for (const Value* part : parts) sequences.push_back(part->as<Sequence>().items);
  return {Sequence{regroup(sequences, wrap)}};
}

Value regroup_tuples(Parts parts, Wrap wrap) {
  for (const Value* part : parts) {
    if (part->as<TupleValue>().items.size() != parts[0]->as<TupleValue>().items.size()) {
      throw DoesNotCompile("tuples of different lengths are different types");
    }
  }
  return regroup_sequences<TupleValue>(parts, wrap);
}

Items items_of(const DictValue& dict) { return {dict.items.begin(), dict.items.end()}; }

Value regroup_dicts(Parts parts, Wrap wrap) {
  std::vector<Items> dicts;
  for (const Value* part : parts) dicts.push_back(items_of(part->as<DictValue>()));
  const Items regrouped = regroup(dicts, wrap);
  return {DictValue{{regrouped.begin(), regrouped.end()}}};
}

/// Returns the first part that is something.
const Value& first_something(Parts parts) {
  for (const Value* part : parts) {
    if (!part->is<std::monostate>()) return *part;
  }
  return *parts[0];
}

/// Regroups leaves of one kind, some of which may be nothing.
struct LeafRegrouper {
  Parts parts;
  Wrap wrap;
  bool some_nothing;

  template <class T>
  Value operator()(const T&) const {
    if constexpr (std::is_same_v<T, std::monostate>) {
      return regroup_optionals<int64_t>(parts, wrap);
    } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                         std::is_same_v<T, std::string> || std::is_same_v<T, at::Tensor>) {
      return some_nothing ? regroup_optionals<T>(parts, wrap) : regroup_leaves<T>(parts, wrap);
    } else {
      throw DoesNotCompile("a function returns values of one type");
    }
  }
};

template <class F>
Values mapped(const Values& items, F&& f) {
  Values results;
  for (const Value& item : items) results.push_back(f(item));
  return results;
}

/// Calls `f` on every child of a container and rebuilds it; other values are returned as they are.
template <class F>
Value map_children(const Value& value, F&& f) {
  if (value.is<ListValue>()) return {ListValue{mapped(value.as<ListValue>().items, f)}};
  if (value.is<TupleValue>()) return {TupleValue{mapped(value.as<TupleValue>().items, f)}};
  if (!value.is<DictValue>()) return value;
  DictValue dict = value.as<DictValue>();
  for (auto& [key, item] : dict.items) item = f(item);
  return {std::move(dict)};
}

}  // namespace

Value regroup_values(Parts parts, Wrap wrap) {
  const Value& first = first_something(parts);
  bool some_nothing = false;
  for (const Value* part : parts) {
    some_nothing = some_nothing || part->is<std::monostate>();
    if (!part->is<std::monostate>() && part->held.index() != first.held.index()) {
      throw DoesNotCompile("a function returns values of one type");
    }
  }
  if (!some_nothing && first.is<ListValue>()) return regroup_sequences<ListValue>(parts, wrap);
  if (!some_nothing && first.is<TupleValue>()) return regroup_tuples(parts, wrap);
  if (!some_nothing && first.is<DictValue>()) return regroup_dicts(parts, wrap);
  return std::visit(LeafRegrouper{parts, wrap, some_nothing}, first.held);
}

Value select_value(int replica, const Value& value) {
  if (value.is<PerReplicaValue>()) return select(replica, PerReplica<Value>(value.as<PerReplicaValue>().items));
  if (value.is<MirroredValue>()) return select(replica, Mirrored<Value>(value.as<MirroredValue>().items));
  if (value.is<ListValue>()) return {ListValue{select(replica, value.as<ListValue>().items)}};
  if (value.is<TupleValue>()) return {TupleValue{select(replica, value.as<TupleValue>().items)}};
  if (!value.is<DictValue>()) return value;
  const Items selected = select(replica, items_of(value.as<DictValue>()));
  return {DictValue{{selected.begin(), selected.end()}}};
}

Value with_mirrored(const Value& value) {
  if (value.is<PerReplicaValue>()) return {MirroredValue{value.as<PerReplicaValue>().items}};
  return map_children(value, with_mirrored);
}

bool has_per_replica(const Value& value) {
  if (value.is<PerReplicaValue>()) return true;
  bool found = false;
  map_children(value, [&](const Value& child) {
    found = found || has_per_replica(child);
    return child;
  });
  return found;
}

std::string repr(const Value& value) {
  if (value.is<std::monostate>()) return "None";
  if (value.is<bool>()) return lockstep::repr(value.as<bool>());
  if (value.is<int64_t>()) return lockstep::repr(value.as<int64_t>());
  if (value.is<double>()) return lockstep::repr(value.as<double>());
  if (value.is<std::string>()) return lockstep::repr(value.as<std::string>());
  return lockstep::repr(value.as<at::Tensor>());
}

std::string str(const Value& value) {
  if (value.is<std::string>()) return lockstep::str(value.as<std::string>());
  return value.is<at::Tensor>() ? lockstep::str(value.as<at::Tensor>()) : repr(value);
}

}  // namespace lockstep::golden
