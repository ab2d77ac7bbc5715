#include "lockstep/xla/graph/mlir/writer.h"

namespace lockstep::xla {

std::string Writer::constant(Dtype dtype, std::string_view literal) {
  std::string name = prefix_ + "c" + std::to_string(constants_++);
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

}  // namespace lockstep::xla
