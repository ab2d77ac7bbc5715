#include "lockstep/xla/graph/text/writer.h"

#include "lockstep/xla/graph/text/layouts.h"

namespace lockstep::xla {

std::string Writer::constant(Dtype dtype, std::string_view literal) {
  std::string name = "%c" + std::to_string(constants_++);
  put(name, " = stablehlo.constant dense<", literal, "> : ", scalar_type(dtype), "\n");
  return name;
}

std::string signature(const Node& node) {
  std::string text = " : (";
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (i > 0) text += ", ";
    text += operand_type(node, i);
  }
  return text + ") -> " + tensor_type(node);
}

void write_constraint(Writer& writer, std::string_view result, std::string_view operand, const Node& value,
                      LayoutPtr layout) {
  const auto write = [&](std::string_view to, std::string_view from, LayoutPtr wanted) {
    writer.put(to, " = sdy.sharding_constraint ", from, " ",
               layout_text(wanted, value.shape.size(), writer.options.partitions), " : ", tensor_type(value), "\n");
  };
  if (!writer.layouts.needs_detour(value, layout)) return write(result, operand, layout);
  const std::string whole = std::string(result) + "_whole";
  write(whole, operand, nullptr);
  write(result, whole, layout);
}

}  // namespace lockstep::xla
