#include "lockstep/xla/graph/ops/scan.h"

#include "lockstep/xla/graph/mlir/literal.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"
#include "lockstep/xla/graph/trace.h"

namespace lockstep::xla {
namespace {

/// The attributes of a scan.
struct ScanAttributes {
  explicit ScanAttributes(const Node& node)
      : length(node.attributes[0]),
        reverse(node.attributes[1] != 0),
        num_sequences(static_cast<size_t>(node.attributes[2])),
        num_carries(static_cast<size_t>(node.attributes[3])) {}

  int64_t length;
  bool reverse;
  size_t num_sequences;
  size_t num_carries;
};

Value parameter(size_t position, Dtype dtype, Ints shape) {
  Value node = make_node(Op::Parameter, dtype, shape, {});
  append(*node, static_cast<int64_t>(position));
  return node;
}

Shape element_shape(const Value& sequence) { return Shape(sequence->shape.begin() + 1, sequence->shape.end()); }

void check_operands(const ScanOperands& operands) {
  LOCKSTEP_ASSERT(!operands.sequences.empty() && !operands.carries.empty());
  for (const Value& sequence : operands.sequences) {
    LOCKSTEP_CHECK_TRACED(!sequence->shape.empty() && sequence->shape[0] == operands.sequences[0]->shape[0],
                          "sequences have one length: ", Ints(sequence->shape), " and ",
                          Ints(operands.sequences[0]->shape));
  }
}

ScanOperands parameters_for(const ScanOperands& operands) {
  ScanOperands inside;
  size_t position = 0;
  for (const Value& sequence : operands.sequences) {
    inside.sequences.push_back(parameter(position++, sequence->dtype, element_shape(sequence)));
  }
  for (const Value& carry : operands.carries) {
    inside.carries.push_back(parameter(position++, carry->dtype, carry->shape));
  }
  for (const Value& constant : operands.constants) {
    inside.constants.push_back(parameter(position++, constant->dtype, constant->shape));
  }
  inside.reverse = operands.reverse;
  return inside;
}

void check_carries(const ScanOperands& inside, const ScanValues& returned) {
  LOCKSTEP_ASSERT(inside.carries.size() == returned.carries.size());
  for (size_t i = 0; i < returned.carries.size(); ++i) {
    LOCKSTEP_ASSERT(inside.carries[i]->dtype == returned.carries[i]->dtype &&
                        inside.carries[i]->shape == returned.carries[i]->shape,
                    describe(*returned.carries[i]));
  }
}

Value scan_output(const Value& loop, size_t position, Dtype dtype, Ints shape) {
  Value node = make_node(Op::ScanOutput, dtype, shape, loop);
  append(*node, static_cast<int64_t>(position));
  return node;
}

std::string joined_list(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text.append(text.empty() ? "" : ", ").append(part);
  return text;
}

/// The text of one scan: a while loop whose state is the counter, the carries, the stacked outputs, and what does not
/// change: sequences and constants.
class ScanText {
 public:
  ScanText(Writer& writer, const Node& node)
      : w_(writer), node_(node), attributes_(node), prefix_("%n" + std::to_string(node.index) + "_") {}

  void write() {
    add_state();
    const std::string types = joined_list(types_);
    const std::string name = w_.own_name(node_);
    w_.put(name, ":", names_.size(), " = \"stablehlo.while\"(", joined_list(initial_), ") ({\n^bb0(", arguments(),
           "):\n");
    write_condition();
    w_.put("}, {\n^bb0(", arguments(), "):\n");
    write_step();
    w_.put("}) : (", types, ") -> (", types, ")\n");
  }

 private:
  const Region& region() const { return *node_.region; }
  std::string own(const std::string& suffix) const { return prefix_ + suffix; }
  size_t num_outputs() const { return region().results.size() - attributes_.num_carries; }
  std::string output_type(size_t i) const {
    const Node& element = *region().results[attributes_.num_carries + i];
    Shape shape{attributes_.length};
    shape.append(element.shape.begin(), element.shape.end());
    return tensor_type(element.dtype, shape);
  }

  void add_state(const std::string& name, const std::string& initial, const std::string& type) {
    names_.push_back(own(name));
    initial_.push_back(initial);
    types_.push_back(type);
  }

  void add_state() {
    add_state("t", w_.constant(at::kInt, "0"), scalar_type(at::kInt));
    for (size_t i = 0; i < attributes_.num_carries; ++i) {
      const size_t operand = attributes_.num_sequences + i;
      add_state("carry" + std::to_string(i), w_.operand(node_, operand), operand_type(node_, operand));
    }
    for (size_t i = 0; i < num_outputs(); ++i) {
      const Dtype dtype = region().results[attributes_.num_carries + i]->dtype;
      const std::string empty = own("empty" + std::to_string(i));
      w_.put(empty, " = stablehlo.constant dense<", literal(0, dtype), "> : ", output_type(i), "\n");
      add_state("output" + std::to_string(i), empty, output_type(i));
    }
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      const bool is_carry = i >= attributes_.num_sequences && i < attributes_.num_sequences + attributes_.num_carries;
      if (!is_carry) add_state("fixed" + std::to_string(i), w_.operand(node_, i), operand_type(node_, i));
    }
  }

  std::string arguments() const {
    std::vector<std::string> all;
    for (size_t i = 0; i < names_.size(); ++i) all.push_back(names_[i] + ": " + types_[i]);
    return joined_list(all);
  }

  void write_condition() {
    const std::string type = scalar_type(at::kInt);
    w_.put(own("length"), " = stablehlo.constant dense<", attributes_.length, "> : ", type, "\n", own("goes_on"),
           " = stablehlo.compare LT, ", names_[0], ", ", own("length"), ", SIGNED : (", type, ", ", type,
           ") -> tensor<i1>\nstablehlo.return ", own("goes_on"), " : tensor<i1>\n");
  }

  /// Names the position of the element that the step belongs to.
  void write_position() {
    const std::string type = scalar_type(at::kInt);
    w_.put(own("zero"), " = stablehlo.constant dense<0> : ", type, "\n", own("one"),
           " = stablehlo.constant dense<1> : ", type, "\n", own("next"), " = stablehlo.add ", names_[0], ", ",
           own("one"), " : ", type, "\n");
    position_ = names_[0];
    if (!attributes_.reverse) return;
    position_ = own("position");
    w_.put(own("last"), " = stablehlo.constant dense<", attributes_.length - 1, "> : ", type, "\n", position_,
           " = stablehlo.subtract ", own("last"), ", ", names_[0], " : ", type, "\n");
  }

  /// The position and zeros as operands of a slice with `rank` dimensions, and their types.
  std::string at_position(size_t rank) const {
    std::string text = ", " + position_;
    for (size_t i = 1; i < rank; ++i) text += ", " + own("zero");
    return text;
  }
  static std::string position_types(size_t rank) {
    std::string text;
    for (size_t i = 0; i < rank; ++i) text += ", " + scalar_type(at::kInt);
    return text;
  }

  std::string element_of(size_t sequence) {
    const Node& whole = *node_.operands[sequence];
    Shape one = whole.shape;
    one[0] = 1;
    const std::string row = own("row" + std::to_string(sequence)), element = own("element" + std::to_string(sequence));
    const std::string row_type = tensor_type(whole.dtype, one);
    w_.put(row, " = stablehlo.dynamic_slice ", own("fixed" + std::to_string(sequence)), at_position(one.size()),
           ", sizes = ", list_text(one), " : (", tensor_type(whole), position_types(one.size()), ") -> ", row_type,
           "\n", element, " = stablehlo.reshape ", row, " : (", row_type, ") -> ",
           tensor_type(whole.dtype, Ints(whole.shape).slice(1)), "\n");
    return element;
  }

  std::string parameter_name(size_t position) {
    if (position < attributes_.num_sequences) return element_of(position);
    const size_t carry = position - attributes_.num_sequences;
    if (carry < attributes_.num_carries) return own("carry" + std::to_string(carry));
    return own("fixed" + std::to_string(position));
  }

  void write_region(Writer& inner) {
    for (const Node* node : region().trace.nodes) {
      if (node->op == Op::Parameter) {
        inner.rename(*node, parameter_name(static_cast<size_t>(node->attributes[0])));
      } else if (node->op == Op::Number) {
        inner.define(*node, "constant dense<", number_literal(*node), "> : ", tensor_type(*node));
      } else {
        write_operation(inner, *node);
      }
    }
    w_.put(inner.take_text());
  }

  std::string with_output(size_t i, const Node& element, const std::string& value) {
    Shape one{1};
    one.append(element.shape.begin(), element.shape.end());
    const std::string row = own("new_row" + std::to_string(i)), all = own("new_output" + std::to_string(i));
    const std::string row_type = tensor_type(element.dtype, one);
    w_.put(row, " = stablehlo.reshape ", value, " : (", tensor_type(element), ") -> ", row_type, "\n", all,
           " = stablehlo.dynamic_update_slice ", own("output" + std::to_string(i)), ", ", row, at_position(one.size()),
           " : (", output_type(i), ", ", row_type, position_types(one.size()), ") -> ", output_type(i), "\n");
    return all;
  }

  void write_step() {
    write_position();
    Writer inner(region().trace.nodes.size(), w_.options, prefix_);
    write_region(inner);
    std::vector<std::string> next{own("next")};
    for (size_t i = 0; i < region().results.size(); ++i) {
      const Node& result = *region().results[i];
      const bool is_carry = i < attributes_.num_carries;
      next.push_back(is_carry ? inner.name(result)
                              : with_output(i - attributes_.num_carries, result, inner.name(result)));
    }
    next.insert(next.end(), names_.begin() + static_cast<int64_t>(next.size()), names_.end());
    w_.put("stablehlo.return ", joined_list(next), " : ", joined_list(types_), "\n");
  }

  Writer& w_;
  const Node& node_;
  ScanAttributes attributes_;
  std::string prefix_;
  std::string position_;
  std::vector<std::string> names_, initial_, types_;
};

}  // namespace

ScanValues scan(const ScanOperands& operands, const ScanStep& step) {
  check_operands(operands);
  const ScanOperands inside = parameters_for(operands);
  const ScanValues returned = step(inside);
  check_carries(inside, returned);
  std::vector<Value> all = operands.sequences;
  all.insert(all.end(), operands.carries.begin(), operands.carries.end());
  all.insert(all.end(), operands.constants.begin(), operands.constants.end());
  std::vector<Value> results = returned.carries;
  results.insert(results.end(), returned.outputs.begin(), returned.outputs.end());
  const int64_t length = operands.sequences[0]->shape[0];
  Value loop = make_node(Op::Scan, operands.carries[0]->dtype, operands.carries[0]->shape, all);
  append(*loop, {length, operands.reverse, static_cast<int64_t>(operands.sequences.size()),
                 static_cast<int64_t>(operands.carries.size())});
  loop->region = std::make_shared<const Region>(std::move(results));
  ScanValues values;
  // The first value of the state is the counter.
  size_t position = 1;
  for (const Value& carry : operands.carries) {
    values.carries.push_back(scan_output(loop, position++, carry->dtype, carry->shape));
  }
  for (const Value& output : returned.outputs) {
    Shape shape{length};
    shape.append(output->shape.begin(), output->shape.end());
    values.outputs.push_back(scan_output(loop, position++, output->dtype, shape));
  }
  return values;
}

void write_scan(Writer& w, const Node& node) { ScanText(w, node).write(); }

void write_scan_output(Writer& w, const Node& node) {
  w.rename(node, w.operand(node, 0) + "#" + std::to_string(node.attributes[0]));
}

}  // namespace lockstep::xla
