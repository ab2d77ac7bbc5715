#include "lockstep/xla/graph/emit.h"

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/text/layouts.h"
#include "lockstep/xla/graph/text/literal.h"
#include "lockstep/xla/graph/text/writer.h"

namespace lockstep::xla {
namespace {

/// A vector of all numbers of one family that are arguments.
struct NumberVector {
  const char* name;
  Dtype dtype;
  int64_t size = 0;

  std::string type() const { return tensor_type(dtype, size); }
};

class ModuleText {
 public:
  ModuleText(const Trace& trace, const EmitOptions& options)
      : trace_(trace), options_(options), writer_(trace, options) {
    LOCKSTEP_ASSERT(options.number_is_argument.size() == trace.numbers.size());
    for (size_t i = 0; i < trace.numbers.size(); ++i) {
      LOCKSTEP_ASSERT(options.number_is_argument[i] || !trace.numbers[i]->always_argument);
      if (options.number_is_argument[i]) ++vector_of(*trace.numbers[i]).size;
    }
  }

  std::string write() {
    writer_.put("module @step attributes {mhlo.num_replicas = ", options_.replicas,
                " : i32, mhlo.num_partitions = ", options_.partitions, " : i32} {\n");
    if (options_.partitions > 1) writer_.put(mesh_text(options_.partitions));
    writer_.put("func.func @main(");
    write_arguments();
    writer_.put(") -> (");
    write_result_types();
    writer_.put(") {\n");
    write_body();
    write_return();
    writer_.put("}\n}\n");
    return writer_.take_text();
  }

 private:
  NumberVector& vector_of(const Node& number) { return is_float(number.dtype) ? floats_ : integers_; }

  std::string layout_attribute(LayoutPtr layout, size_t rank) const {
    if (options_.partitions == 1) return "";
    return "sdy.sharding = #sdy.sharding" + layout_text(layout, rank, options_.partitions);
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
    int64_t& place = is_float(number.dtype) ? next_float_ : next_integer_;
    const std::string one = tensor_type(all.dtype, 1), scalar = scalar_type(all.dtype);
    const std::string part = writer_.step(number, "part", "slice ", all.name, " [", place, ":", place + 1, "] : (",
                                          all.type(), ") -> ", one);
    ++place;
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
      const Trace::Result& result = trace_.results[i];
      std::string name = writer_.name(*result.value);
      if (writer_.layouts.needs_detour(*result.value, result.layout)) {
        const std::string laid_out = "%r" + std::to_string(i);
        write_constraint(writer_, laid_out, name, *result.value, result.layout);
        name = laid_out;
      }
      names.append(i > 0 ? ", " : "").append(name);
      types.append(i > 0 ? ", " : " : ").append(tensor_type(*result.value));
    }
    writer_.put("return ", names, types, "\n");
  }

  const Trace& trace_;
  const EmitOptions& options_;
  Writer writer_;
  NumberVector floats_{"%floats", at::kDouble};
  NumberVector integers_{"%integers", at::kLong};
  int64_t next_float_ = 0;
  int64_t next_integer_ = 0;
};

}  // namespace

std::string emit(const Trace& trace, const EmitOptions& options) { return ModuleText(trace, options).write(); }

}  // namespace lockstep::xla
