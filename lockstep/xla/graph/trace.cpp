#include "lockstep/xla/graph/trace.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

class Hash {
 public:
  void add(uint64_t word) {
    value_ = (value_ ^ word) * 1099511628211u;
    value_ ^= value_ >> 29;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 1469598103934665603u;
};

uint64_t word(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

LayoutPtr layout_of(const Node& argument) { return argument.data != nullptr ? argument.data->layout : nullptr; }

/// A node on the stack of the traversal, and its next operand.
struct Visit {
  Node* node;
  size_t next;
};

void visit(Node* root, uint32_t epoch, std::vector<Visit>& stack, Trace& trace) {
  if (root->epoch == epoch) return;
  root->epoch = epoch;
  stack.push_back({root, 0});
  while (!stack.empty()) {
    Visit& top = stack.back();
    Node* node = top.node;
    if (top.next < node->operands.size()) {
      Node* operand = node->operands[top.next++].get();
      if (operand->epoch == epoch) continue;
      operand->epoch = epoch;
      stack.push_back({operand, 0});
      continue;
    }
    stack.pop_back();
    node->index = static_cast<uint32_t>(trace.nodes.size());
    trace.nodes.push_back(node);
    if (node->op == Op::Argument) {
      trace.arguments.push_back(node);
      trace.argument_layouts.push_back(layout_of(*node));
    } else if (node->op == Op::Number) {
      trace.numbers.push_back(node);
    }
  }
}

/// Donates an argument that no other storage holds to the new value of the storage that held it.
void plan_donation(Trace& trace) {
  trace.donated_to.assign(trace.arguments.size(), -1);
  // `before` is only compared, never dereferenced: its node may be gone.
  std::vector<std::pair<const Node*, size_t>> free_arguments;
  free_arguments.reserve(trace.arguments.size());
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    if (trace.arguments[i]->owners.load() == 0) free_arguments.emplace_back(trace.arguments[i], i);
  }
  std::sort(free_arguments.begin(), free_arguments.end());
  for (size_t j = 0; j < trace.results.size(); ++j) {
    const Trace::Result& result = trace.results[j];
    if (result.before == nullptr || result.value->op == Op::Argument) continue;
    const auto found =
        std::lower_bound(free_arguments.begin(), free_arguments.end(), std::pair{result.before, size_t{0}});
    if (found == free_arguments.end() || found->first != result.before) continue;
    const auto [argument, i] = *found;
    const bool fits = argument->dtype == result.value->dtype && argument->shape == result.value->shape &&
                      trace.argument_layouts[i] == result.layout;
    if (fits && trace.donated_to[i] < 0) trace.donated_to[i] = static_cast<int>(j);
  }
}

/// Everything about a node except shapes and operands, in one word.
uint64_t head(const Node& node) {
  LOCKSTEP_ASSERT(node.operands.size() < 1u << 20 && node.attributes.size() < 1u << 20);
  return uint64_t(node.op) | uint64_t(node.always_argument) << 7 | uint64_t(node.dtype) << 8 |
         uint64_t(node.shape.size()) << 16 | uint64_t(node.operands.size()) << 24 |
         uint64_t(node.attributes.size()) << 44;
}

void append_key(const Node& node, Hash& skeleton, std::vector<uint64_t>& key) {
  const auto both = [&](uint64_t word) {
    key.push_back(word);
    skeleton.add(word);
  };
  both(head(node));
  both(node.kind);
  if (node.op == Op::Annotation) both(word(node.layout));
  if (node.op == Op::Argument) both(word(layout_of(node)));
  key.insert(key.end(), node.shape.begin(), node.shape.end());
  const size_t sizes = num_size_attributes(node);
  key.insert(key.end(), node.attributes.begin(), node.attributes.begin() + static_cast<ptrdiff_t>(sizes));
  for (size_t i = sizes; i < node.attributes.size(); ++i) both(static_cast<uint64_t>(node.attributes[i]));
  for (const Value& operand : node.operands) both(operand->index);
  if (node.region != nullptr) {
    both(node.region->trace.skeleton);
    key.push_back(node.region->key.size());
    key.insert(key.end(), node.region->key.begin(), node.region->key.end());
  }
}

void make_key(Trace& trace) {
  Hash skeleton, hash;
  trace.key.reserve(trace.nodes.size() * 8 + trace.results.size() * 2);
  for (const Node* node : trace.nodes) append_key(*node, skeleton, trace.key);
  for (const Trace::Result& result : trace.results) {
    for (const uint64_t word : {uint64_t{result.value->index}, word(result.layout)}) {
      trace.key.push_back(word);
      skeleton.add(word);
    }
  }
  for (const uint64_t word : trace.key) hash.add(word);
  trace.hash = hash.value();
  trace.skeleton = skeleton.value();
}

}  // namespace

Trace collect(std::vector<Trace::Result> results) {
  static std::atomic<uint32_t> epochs{0};
  const uint32_t epoch = ++epochs;
  Trace trace;
  trace.results = std::move(results);
  trace.nodes.reserve(512);
  std::vector<Visit> stack;
  stack.reserve(128);
  for (const Trace::Result& result : trace.results) {
    visit(result.value.get(), epoch, stack, trace);
    trace.needs_others |= result.value->needs_others;
  }
  plan_donation(trace);
  make_key(trace);
  return trace;
}

Region::Region(std::vector<Value> values) : results(std::move(values)) {
  // Results may repeat; those of a trace are distinct.
  std::vector<Trace::Result> distinct;
  for (const Value& value : results) {
    bool is_new = true;
    for (const Trace::Result& known : distinct) is_new = is_new && known.value != value;
    if (is_new) distinct.push_back({value, nullptr, nullptr});
  }
  trace = collect(std::move(distinct));
  key = trace.key;
  for (const Value& value : results) key.push_back(value->index);
  for (const Node* number : trace.numbers) key.push_back(number_bits(*number));
}

uint64_t number_bits(const Node& number) {
  if (!is_float(number.dtype)) return static_cast<uint64_t>(number.integer);
  return std::bit_cast<uint64_t>(number.number);
}

}  // namespace lockstep::xla
