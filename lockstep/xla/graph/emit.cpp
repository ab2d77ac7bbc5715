#include "lockstep/xla/graph/emit.h"

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/mlir/layouts.h"
#include "lockstep/xla/graph/mlir/literal.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

/// The argument that holds all numbers of one type (float64 or int64).
struct NumberVector {
  std::string name;
  Dtype dtype;
  int64_t size = 0;

  std::string type() const { return tensor_type(dtype, size); }
};

class ModuleText {
 public:
  ModuleText(const Trace& trace, const EmitOptions& options)
      : trace_(trace), options_(options), writer_(trace.nodes.size(), options) {
    LOCKSTEP_ASSERT(options.number_is_argument.size() == trace.numbers.size());
    for (size_t i = 0; i < trace.numbers.size(); ++i) {
      LOCKSTEP_ASSERT(options.number_is_argument[i] || !trace.numbers[i]->always_argument);
      if (options.number_is_argument[i]) ++vector_of(*trace.numbers[i]).size;
    }
  }

  std::string write() {
    const int all = options_.replicas * options_.partitions;
    writer_.put("module @step attributes {mhlo.num_replicas = ", joins_ ? 1 : options_.replicas,
                " : i32, mhlo.num_partitions = ", joins_ ? all : options_.partitions, " : i32} {\n");
    if (options_.partitions > 1) writer_.put(mesh_text(joins_ ? options_.replicas : 1, options_.partitions));
    writer_.put("func.func @main(");
    write_arguments();
    writer_.put(") -> (");
    write_result_types();
    writer_.put(") {\n");
    if (joins_) begin_replica();
    write_body();
    write_return();
    if (joins_) end_replica();
    writer_.put("}\n}\n");
    return writer_.take_text();
  }

 private:
  /// The body is the program of one replica; the partitioner does not see that values differ between replicas.
  void begin_replica() {
    std::string names, layouts, inside;
    const auto add = [&](const std::string& name, const std::string& type, const std::string& layout) {
      const char* separator = names.empty() ? "" : ", ";
      names.append(separator).append(name);
      layouts.append(separator).append(layout);
      inside.append(separator).append(name + "_own: " + type);
    };
    for (size_t i = 0; i < trace_.arguments.size(); ++i) {
      const Node& argument = *trace_.arguments[i];
      add(writer_.name(argument), tensor_type(argument), layout(trace_.argument_layouts[i], argument.shape.size()));
      writer_.rename(argument, writer_.name(argument) + "_own");
    }
    for (NumberVector* numbers : {&floats_, &integers_}) {
      if (numbers->size == 0) continue;
      add(numbers->name, numbers->type(), layout(nullptr, 1));
      numbers->name += "_own";
    }
    std::string of_results;
    for (const Trace::Result& result : trace_.results) {
      of_results.append(of_results.empty() ? "" : ", ").append(layout(result.layout, result.value->shape.size()));
    }
    writer_.put("%all:", trace_.results.size(), " = sdy.manual_computation(", names, ") in_shardings=[", layouts,
                "] out_shardings=[", of_results, "] manual_axes={\"replica\"} (", inside, ") {\n");
  }

  void end_replica() {
    std::string arguments, names, types;
    for (const Node* argument : trace_.arguments) {
      arguments.append(arguments.empty() ? "" : ", ").append(tensor_type(*argument));
    }
    for (const NumberVector* numbers : {&floats_, &integers_}) {
      if (numbers->size > 0) arguments.append(arguments.empty() ? "" : ", ").append(numbers->type());
    }
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      names.append(i > 0 ? ", " : "").append("%all#" + std::to_string(i));
      types.append(i > 0 ? ", " : "").append(tensor_type(*trace_.results[i].value));
    }
    writer_.put("} : (", arguments, ") -> (", types, ")\nreturn ", names, " : ", types, "\n");
  }

  std::string layout(LayoutPtr layout, size_t rank) const { return layout_text(layout, rank, options_.partitions); }

  NumberVector& vector_of(const Node& number) { return is_float(number.dtype) ? floats_ : integers_; }

  std::string layout_attribute(LayoutPtr layout, size_t rank) const {
    if (options_.partitions == 1) return "";
    return "sdy.sharding = #sdy.sharding" + this->layout(layout, rank);
  }

  void write_arguments() {
    const char* separator = "";
    for (size_t i = 0; i < trace_.arguments.size(); ++i) {
      const Node& argument = *trace_.arguments[i];
      std::string attributes = layout_attribute(trace_.argument_layouts[i], argument.shape.size());
      if (trace_.donated_to[i] >= 0) {
        if (!attributes.empty()) attributes += ", ";
        attributes += "tf.aliasing_output = " + std::to_string(trace_.donated_to[i]) + " : i32";
      }
      writer_.put(separator, writer_.rename(argument, "%p" + std::to_string(i)), ": ", tensor_type(argument));
      if (!attributes.empty()) writer_.put(" {", attributes, "}");
      separator = ", ";
    }
    for (const NumberVector* numbers : {&floats_, &integers_}) {
      if (numbers->size == 0) continue;
      writer_.put(separator, numbers->name, ": ", numbers->type());
      if (options_.partitions > 1) writer_.put(" {", layout_attribute(nullptr, 1), "}");
      separator = ", ";
    }
  }

  void write_result_types() {
    const char* separator = "";
    for (const Trace::Result& result : trace_.results) {
      writer_.put(separator, tensor_type(*result.value));
      if (options_.partitions > 1) {
        writer_.put(" {", layout_attribute(result.layout, result.value->shape.size()), "}");
      }
      separator = ", ";
    }
  }

  void write_body() {
    size_t number = 0;
    for (const Node* node : trace_.nodes) {
      if (node->op == Op::Argument) continue;
      if (node->op == Op::Number) {
        write_number(*node, options_.number_is_argument[number++]);
      } else {
        write_operation(writer_, *node);
      }
    }
  }

  void write_number(const Node& number, bool is_argument) {
    if (!is_argument) {
      writer_.define(number, "constant dense<", number_literal(number), "> : ", tensor_type(number));
      return;
    }
    NumberVector& all = vector_of(number);
    int64_t& position = is_float(number.dtype) ? next_float_ : next_integer_;
    const std::string one = tensor_type(all.dtype, 1), scalar = scalar_type(all.dtype);
    const std::string part = writer_.step(number, "part", "slice ", all.name, " [", position, ":", position + 1,
                                          "] : (", all.type(), ") -> ", one);
    ++position;
    if (number.dtype == all.dtype) {
      writer_.define(number, "reshape ", part, " : (", one, ") -> ", scalar);
      return;
    }
    const std::string wide = writer_.step(number, "wide", "reshape ", part, " : (", one, ") -> ", scalar);
    writer_.define(number, "convert ", wide, " : (", scalar, ") -> ", tensor_type(number));
  }

  void write_return() {
    std::string names, types;
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const Node& value = *trace_.results[i].value;
      names.append(i > 0 ? ", " : "").append(writer_.name(value));
      types.append(i > 0 ? ", " : " : ").append(tensor_type(value));
    }
    writer_.put(joins_ ? "sdy.return " : "return ", names, types, "\n");
  }

  const Trace& trace_;
  const EmitOptions& options_;
  const bool joins_ = joins_replicas(options_.replicas, options_.partitions);
  Writer writer_;
  NumberVector floats_{"%floats", at::kDouble};
  NumberVector integers_{"%integers", at::kLong};
  int64_t next_float_ = 0;
  int64_t next_integer_ = 0;
};

}  // namespace

std::string emit(const Trace& trace, const EmitOptions& options) { return ModuleText(trace, options).write(); }

}  // namespace lockstep::xla
