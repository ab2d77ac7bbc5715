#include "lockstep/xla/engine/recorded_step.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include <ATen/ATen.h>

namespace lockstep::xla {
namespace {

/// Larger host tensors that a step makes are not compared: such a step is traced every time.
constexpr size_t kComparableBytes = 1 << 20;

constexpr NumberRule kRules[] = {NumberRule::Same, NumberRule::Negative, NumberRule::OneMinus};

uint64_t hash_of(const Node& node) {
  uint64_t hash = 1469598103934665603u;
  const auto add = [&](uint64_t word) { hash = (hash ^ word) * 1099511628211u; };
  add(static_cast<uint64_t>(node.op) << 16 | static_cast<uint64_t>(node.kind) << 8 | static_cast<uint64_t>(node.dtype));
  for (const int64_t size : node.shape) add(static_cast<uint64_t>(size));
  for (const int64_t attribute : node.attributes) add(static_cast<uint64_t>(attribute));
  for (const Value& operand : node.operands) add(operand->index);
  return hash;
}

/// Of each node of a trace the function that first uses it.
std::vector<const char*> readers_of(const Trace& trace) {
  std::vector<const char*> readers(trace.nodes.size(), "");
  for (const Node* node : trace.nodes) {
    for (const Value& operand : node->operands) {
      if (*readers[operand->index] == '\0') readers[operand->index] = node->origin;
    }
  }
  return readers;
}

void add_once(LazyStorage& storage, std::vector<LazyStorage*>& storages) {
  if (std::find(storages.begin(), storages.end(), &storage) == storages.end()) storages.push_back(&storage);
}

/// The storages that hold an argument, or held it before they were written, were there before the run, and were read in
/// it.
std::vector<LazyStorage*> homes_of(const Node& argument, const Pending& pending) {
  std::vector<LazyStorage*> homes;
  const auto add = [&](LazyStorage& storage) {
    if (storage.is_read_in_run() && !storage.is_made_in_run()) add_once(storage, homes);
  };
  for (ValueHolder* holder : argument.holders) add(*static_cast<LazyStorage*>(holder));
  for (PendingStorage* written : pending.storages) {
    if (written != nullptr && lazy_storage(*written).before().get() == &argument) add(lazy_storage(*written));
  }
  return homes;
}

int position_of(const LazyStorage* storage, const std::vector<LazyStorage*>& storages) {
  const auto found = std::find(storages.begin(), storages.end(), storage);
  return found == storages.end() ? -1 : static_cast<int>(found - storages.begin());
}

RecordedStep::Source source_of(const Node& argument, const PendingWork& work, const char* reader,
                               const std::vector<LazyStorage*>& arguments, std::string& refusal) {
  RecordedStep::Source source;
  source.dtype = argument.dtype;
  source.shape = argument.shape;
  source.layout = data_of(argument).layout;
  source.reader = reader;
  std::vector<LazyStorage*> homes = homes_of(argument, work.pending());
  for (const LazyStorage* home : homes) {
    const int position = position_of(home, arguments);
    if (position >= 0 && source.argument < 0) source.argument = position;
  }
  std::erase_if(homes, [&](const LazyStorage* home) { return position_of(home, arguments) >= 0; });
  if (homes.size() + (source.argument >= 0 ? 1 : 0) > 1) {
    refusal = std::string("two tensors that the function uses share one value, in ") + source.reader +
              ": they are copies of each other";
  }
  if (source.argument >= 0) return source;
  if (homes.empty()) {
    source.constant = Value::reclaim_copy(const_cast<Node*>(&argument));
  } else {
    source.storage = homes[0]->watch();
  }
  return source;
}

RecordedStep::Sink sink_of(const Trace::Result& result, const Pending& pending) {
  RecordedStep::Sink sink{{}, result.value->dtype, result.value->shape, result.layout, result.value->origin};
  for (PendingStorage* holder : pending.storages) {
    if (holder == nullptr) continue;
    LazyStorage& storage = lazy_storage(*holder);
    const bool is_state = storage.before() != nullptr && !storage.is_made_in_run();
    if (storage.value() == result.value) sink.holders.push_back({storage.watch(), is_state});
  }
  return sink;
}

bool same_storage(const std::weak_ptr<LazyStorage*>& a, const std::weak_ptr<LazyStorage*>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

bool same_constants(const Value& a, const Value& b) {
  if (a == b) return true;
  if (!a || !b || a->dtype != b->dtype || a->shape != b->shape) return false;
  const size_t bytes = static_cast<size_t>(a->numel()) * c10::elementSize(a->dtype);
  return bytes <= kComparableBytes && at::equal(download(*a), download(*b));
}

std::string in_function(const char* origin) { return *origin == '\0' ? "" : std::string(", in ") + origin; }

std::string compare_operations(const RecordedStep& now, const RecordedStep& last) {
  if (now.key == last.key) return "";
  const size_t common = std::min(now.operations.size(), last.operations.size());
  size_t first = 0;
  while (first < common && now.operations[first].hash == last.operations[first].hash) ++first;
  const auto name = [&](const RecordedStep& step) {
    const char* origin = first < step.operations.size() ? step.operations[first].origin : "";
    return std::string(*origin == '\0' ? "nothing" : origin);
  };
  return "the program has changed since the last call: operation " + std::to_string(first) + " comes from " +
         name(now) + ", and came from " + name(last);
}

std::string compare_sources(const RecordedStep& now, const RecordedStep& last) {
  for (size_t i = 0; i < now.sources.size(); ++i) {
    const auto& a = now.sources[i];
    const auto& b = last.sources[i];
    if (a.argument != b.argument) {
      return std::string("the function uses another argument than in the last call") + in_function(a.reader);
    }
    if (a.argument >= 0) continue;
    if (!a.constant && !b.constant && !same_storage(a.storage, b.storage)) {
      return std::string("a tensor that the function captures was replaced since the last call") +
             in_function(a.reader);
    }
    if ((a.constant || b.constant) && !same_constants(a.constant, b.constant)) {
      return std::string("the function makes a tensor on the host that changes from call to call") +
             in_function(a.reader) + "; pass it as an argument";
    }
  }
  return "";
}

std::string compare_sinks(const RecordedStep& now, const RecordedStep& last) {
  const auto state = [](const RecordedStep::Sink& sink) {
    std::vector<std::weak_ptr<LazyStorage*>> storages;
    for (const auto& holder : sink.holders) {
      if (holder.is_state) storages.push_back(holder.storage);
    }
    return storages;
  };
  for (size_t i = 0; i < now.sinks.size(); ++i) {
    const auto a = state(now.sinks[i]);
    const auto b = state(last.sinks[i]);
    const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end(), same_storage);
    if (!same) {
      return std::string("the function writes to another tensor than in the last call") +
             in_function(now.sinks[i].origin);
    }
  }
  if (now.returned != last.returned) return "the function returns other values than in the last call";
  return "";
}

/// Whether a function of LibTorch checks its numbers: probabilities, deviations, ranges.
bool checks_its_numbers(std::string_view function) {
  constexpr std::string_view kFunctions[] = {"bernoulli",  "binomial", "cauchy", "dropout",    "exponential",
                                             "geometric",  "normal",   "random", "uniform",    "huber_loss",
                                             "smooth_l1_", "celu",     "renorm", "threshold_", "pow"};
  return std::any_of(std::begin(kFunctions), std::end(kFunctions),
                     [&](std::string_view name) { return function.find(name) != std::string_view::npos; });
}

double as_double(const StepNumber& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

/// The calls `now` and `last` have been traced without an error: LibTorch has accepted their numbers.
void note_accepted(const RecordedStep& now, const RecordedStep& last, size_t i, RecordedStep::Number& number) {
  if (number.argument < 0 || !checks_its_numbers(number.origin)) return;
  const auto argument = static_cast<size_t>(number.argument);
  const double a = as_double(now.given[argument]), b = as_double(last.given[argument]);
  const RecordedStep::Number& before = last.numbers[i];
  const bool is_known = before.is_checked && before.argument == number.argument && before.rule == number.rule;
  number.is_checked = true;
  number.least_accepted = std::min({a, b, is_known ? before.least_accepted : a});
  number.most_accepted = std::max({a, b, is_known ? before.most_accepted : a});
}

std::string text_of_number(const RecordedStep::Number& number) {
  if (is_float(number.dtype)) return c10::str(std::bit_cast<double>(number.bits));
  return std::to_string(static_cast<int64_t>(number.bits));
}

/// Finds the position by which a slice begins where number `i` of the program says, and that is a number that the step
/// was called with, in both calls. All others are the same in both.
bool find_position(size_t i, RecordedStep& now, const RecordedStep& last) {
  RecordedStep::Number& number = now.numbers[i];
  const RecordedStep::Number& before = last.numbers[i];
  if (!before.positions || before.positions->size() != number.positions->size()) return false;
  const auto at_zero = [](const RecordedStep::Number& of, const Position& position) {
    return static_cast<int64_t>(of.bits) - position.value * position.unit;
  };
  const auto take = [&](size_t argument, const Position& position, const Position& last_position) {
    const bool is_same = position.unit == last_position.unit && position.most == last_position.most &&
                         at_zero(number, position) == at_zero(before, last_position);
    if (!is_same || argument >= last.given.size() || now.given[argument] != StepNumber(position.value) ||
        last.given[argument] != StepNumber(last_position.value)) {
      return;
    }
    if (number.argument >= 0) {
      if (static_cast<size_t>(number.argument) == argument) return;
      now.equal_given.emplace_back(number.argument, static_cast<int>(argument));
      return;
    }
    number.argument = static_cast<int>(argument);
    number.rule = NumberRule::Position;
    number.at_zero = at_zero(number, position);
    number.unit = position.unit;
    number.most_position = position.most;
  };
  const auto take_all = [&](auto&& is_wanted) {
    for (size_t argument = 0; argument < now.given.size(); ++argument) {
      for (size_t p = 0; p < number.positions->size(); ++p) {
        const Position& position = (*number.positions)[p];
        if (is_wanted(argument, position)) take(argument, position, (*before.positions)[p]);
      }
    }
  };
  if (before.argument >= 0) {
    take_all([&](size_t argument, const Position& position) {
      return argument == static_cast<size_t>(before.argument) && before.at_zero == at_zero(number, position) &&
             before.unit == position.unit && before.most_position == position.most;
    });
  }
  take_all([](size_t, const Position&) { return true; });
  return number.argument >= 0;
}

/// Finds the rule by which number `i` of the program follows from one that the step was called with, in both calls. If
/// it follows from several, a replay needs them to be equal.
bool find_rule(size_t i, RecordedStep& now, const RecordedStep& last) {
  RecordedStep::Number& number = now.numbers[i];
  const RecordedStep::Number& before = last.numbers[i];
  if (before.argument < 0 && number.bits == before.bits) return true;
  if (number.positions) return find_position(i, now, last);
  const auto follows = [&](const RecordedStep& step, size_t argument, NumberRule rule) {
    const RecordedStep::Number& of = step.numbers[i];
    return argument < step.given.size() && of.bits == bits_by_rule(step.given[argument], rule, of.dtype);
  };
  const auto take = [&](size_t argument, NumberRule rule) {
    if (!follows(now, argument, rule) || !follows(last, argument, rule)) return;
    if (number.argument < 0) {
      number.argument = static_cast<int>(argument);
      number.rule = rule;
    } else if (static_cast<size_t>(number.argument) != argument) {
      now.equal_given.emplace_back(number.argument, static_cast<int>(argument));
    }
  };
  if (before.argument >= 0) take(static_cast<size_t>(before.argument), before.rule);
  for (size_t argument = 0; argument < now.given.size(); ++argument) {
    for (const NumberRule rule : kRules) take(argument, rule);
  }
  return number.argument >= 0;
}

/// Numbers of the caller that have changed and that no number of the program follows from.
std::vector<size_t> unused_numbers(const RecordedStep& step) {
  std::vector<char> is_used(step.given.size(), 0);
  for (const RecordedStep::Number& number : step.numbers) {
    if (number.argument >= 0) is_used[static_cast<size_t>(number.argument)] = 1;
  }
  for (const auto& [a, b] : step.equal_given) is_used[static_cast<size_t>(b)] = 1;
  std::vector<size_t> unused;
  for (size_t i = 0; i < std::min(step.num_from_caller, step.given.size()); ++i) {
    if (step.given_changes[i] != 0 && is_used[i] == 0) unused.push_back(i);
  }
  return unused;
}

/// The number that a value is made of without arithmetic; null if it is none.
const Node* number_under(const Node& node) {
  if (node.op == Op::Number) return &node;
  const bool is_copy = node.op == Op::Convert || node.op == Op::Broadcast || node.op == Op::Reshape;
  return is_copy ? number_under(*node.operands[0]) : nullptr;
}

/// Sets the values that numbers may have in an operation. `position` is that of a node among the numbers.
void limit_numbers(const Node& node, const std::vector<int>& position, std::vector<RecordedStep::Number>& numbers) {
  if (node.op == Op::DynamicSlice || node.op == Op::DynamicUpdateSlice) {
    const size_t first = node.op == Op::DynamicSlice ? 1 : 2;
    const Shape& part = node.op == Op::DynamicSlice ? node.shape : node.operands[1]->shape;
    for (size_t dim = 0; dim < part.size(); ++dim) {
      const Node& start = *node.operands[first + dim];
      if (start.op != Op::Number || start.positions) continue;
      RecordedStep::Number& number = numbers[static_cast<size_t>(position[start.index])];
      number.least = std::max<int64_t>(number.least, 0);
      number.most = std::min(number.most, node.operands[0]->shape[dim] - part[dim]);
    }
  }
  const bool divides = node.op == Op::Binary && (node.kind_as<BinaryOp>() == BinaryOp::Divide ||
                                                 node.kind_as<BinaryOp>() == BinaryOp::Remainder);
  if (!divides || is_float(node.dtype)) return;
  if (const Node* divisor = number_under(*node.operands[1])) {
    numbers[static_cast<size_t>(position[divisor->index])].may_be_zero = false;
  }
}

const char* advice_for(const RecordedStep::Number& number) {
  if (!number.positions) return "; pass it to the step as a tensor, or as a number that is used as it is";
  return "; it is where a view begins: pass a number to the step that is used as it is, as the one position that "
         "changes, in `x[i]`, `select`, `narrow` or `slice`, or pass a tensor to `index_select`";
}

std::string compare_numbers(RecordedStep& now, const RecordedStep& last) {
  now.given_changes = last.given_changes;
  now.given_changes.resize(now.given.size(), 0);
  for (size_t i = 0; i < std::min(now.given.size(), last.given.size()); ++i) {
    if (now.given[i] != last.given[i]) now.given_changes[i] = 1;
  }
  for (size_t i = 0; i < now.numbers.size(); ++i) {
    if (now.numbers[i].draw >= 0) continue;
    if (find_rule(i, now, last)) {
      note_accepted(now, last, i, now.numbers[i]);
      continue;
    }
    return std::string("a number changes from call to call") + in_function(now.numbers[i].origin) + ": it is " +
           text_of_number(now.numbers[i]) + ", and was " + text_of_number(last.numbers[i]) + advice_for(now.numbers[i]);
  }
  now.unused_given = unused_numbers(now);
  if (now.unused_given.empty()) return "";
  return "number " + std::to_string(now.unused_given[0]) +
         " that it is called with changes, and no number of the program follows from it: each of its values is a step "
         "of its own, because the function may branch on it";
}

}  // namespace

uint64_t bits_by_rule(const StepNumber& given, NumberRule rule, Dtype dtype) {
  if (std::holds_alternative<int64_t>(given) && rule != NumberRule::OneMinus) {
    const int64_t value = std::get<int64_t>(given);
    return number_bits(*integer(rule == NumberRule::Negative ? -value : value, dtype));
  }
  const double value =
      std::holds_alternative<double>(given) ? std::get<double>(given) : static_cast<double>(std::get<int64_t>(given));
  if (rule == NumberRule::Negative) return number_bits(*number(-value, dtype));
  return number_bits(*number(rule == NumberRule::OneMinus ? 1 - value : value, dtype));
}

bool RecordedStep::Number::allows(const StepNumber& given) const {
  if (rule == NumberRule::Position) {
    const int64_t* position = std::get_if<int64_t>(&given);
    return position != nullptr && 0 <= *position && *position <= most_position;
  }
  if (is_checked && !(least_accepted <= as_double(given) && as_double(given) <= most_accepted)) return false;
  if (least == INT64_MIN && most == INT64_MAX && may_be_zero) return true;
  const auto bits = static_cast<int64_t>(bits_by_rule(given, rule, at::kLong));  // a narrower dtype would wrap around
  const bool is_zero = bits_by_rule(given, rule, dtype) == 0;
  return least <= bits && bits <= most && (may_be_zero || !is_zero);
}

void RecordedStep::record(const PendingWork& work, const std::vector<LazyStorage*>& arguments) {
  const std::lock_guard<std::recursive_mutex> lock(work.device().mutex());
  const Trace& trace = work.trace();
  ++launches;
  key = trace.key;
  donated_to = trace.donated_to;
  sources.clear();
  sinks.clear();
  numbers.clear();
  operations.clear();
  for (const Node* node : trace.nodes) operations.push_back({hash_of(*node), node->origin});
  const std::vector<const char*> readers = readers_of(trace);
  for (const Node* argument : trace.arguments) {
    sources.push_back(source_of(*argument, work, readers[argument->index], arguments, refusal));
    if (sources.back().constant && donated_to[sources.size() - 1] >= 0) {
      refusal = "the function writes in place to a tensor that it copied from the host" +
                in_function(readers[argument->index]) + "; pass it as an argument";
    }
  }
  for (const Trace::Result& result : trace.results) sinks.push_back(sink_of(result, work.pending()));
  std::vector<int> position_of_number(trace.nodes.size(), -1);
  for (const Node* number : trace.numbers) {
    position_of_number[number->index] = static_cast<int>(numbers.size());
    numbers.push_back({number_bits(*number), number->dtype, number->ordinal, number->origin});
    numbers.back().positions = number->positions;
  }
  for (const Node* node : trace.nodes) limit_numbers(*node, position_of_number, numbers);
  for (PendingStorage* written : work.pending().storages) {
    const int position = written == nullptr ? -1 : position_of(&lazy_storage(*written), arguments);
    if (position < 0) continue;
    refusal = "the function writes its argument " + std::to_string(position) + " in place" +
              in_function(lazy_storage(*written).value()->origin) + "; clone it first";
  }
}

void RecordedStep::set_results(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) {
    const LazyStorage* storage = storage_of(result);
    int found = -1;
    for (size_t i = 0; i < sinks.size() && storage != nullptr; ++i) {
      for (const Sink::Holder& holder : sinks[i].holders) {
        if (!holder.is_state && holder.is(storage)) found = static_cast<int>(i);
      }
    }
    const bool is_whole = found >= 0 && result.is_contiguous() && result.sizes() == Ints(sinks[found].shape);
    returned.push_back(is_whole ? found : -1);
  }
}

std::string RecordedStep::compare_with(const RecordedStep& last) {
  std::string difference = compare_operations(*this, last);
  if (difference.empty()) difference = compare_numbers(*this, last);
  if (difference.empty()) difference = compare_sources(*this, last);
  if (difference.empty()) difference = compare_sinks(*this, last);
  return difference;
}

std::vector<size_t> RecordedStep::numbers_that_select(const RecordedStep& last) const {
  if (key == last.key) return unused_given;
  std::vector<size_t> different;
  for (size_t i = 0; i < std::min(given.size(), last.given.size()); ++i) {
    if (given[i] != last.given[i]) different.push_back(i);
  }
  return different;
}

uint64_t RecordedStep::number_bits_with(const Number& number, const std::vector<StepNumber>& now) const {
  if (number.argument < 0) return number.bits;
  const StepNumber& given = now[number.argument];
  if (number.rule != NumberRule::Position) return bits_by_rule(given, number.rule, number.dtype);
  return static_cast<uint64_t>(number.at_zero + number.unit * std::get<int64_t>(given));
}

}  // namespace lockstep::xla
