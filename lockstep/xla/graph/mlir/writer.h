#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/xla/graph/emit_options.h"
#include "lockstep/xla/graph/mlir/types.h"
#include "lockstep/xla/graph/node.h"

namespace lockstep::xla {

/// Internal: the text of a module while it is written, and the names of its values.
class Writer {
 public:
  /// Names begin with `prefix`: those of a region must differ from those around it.
  Writer(size_t num_nodes, const EmitOptions& options, std::string prefix = "%")
      : options(options), prefix_(std::move(prefix)), names_(num_nodes) {}

  const EmitOptions& options;

  template <typename... Parts>
  void put(const Parts&... parts) {
    (append(parts), ...);
  }
  /// Writes `%n12 = stablehlo.<parts>` and gives the node this name.
  template <typename... Parts>
  void define(const Node& node, const Parts&... parts) {
    put(own_name(node), " = stablehlo.", parts..., "\n");
  }
  /// Writes an intermediate value of a node, `%n12_<suffix> = stablehlo.<parts>`, and returns its name.
  template <typename... Parts>
  std::string step(const Node& node, std::string_view suffix, const Parts&... parts) {
    std::string name = prefix_ + "n" + std::to_string(node.index) + "_";
    name += suffix;
    put(name, " = stablehlo.", parts..., "\n");
    return name;
  }
  /// Writes a constant without dimensions and returns its name.
  std::string constant(Dtype dtype, std::string_view literal);

  /// Names the node `%n12` and returns the name.
  const std::string& own_name(const Node& node) { return rename(node, prefix_ + "n" + std::to_string(node.index)); }
  const std::string& rename(const Node& node, std::string name) { return names_[node.index] = std::move(name); }
  const std::string& name(const Node& node) const { return names_[node.index]; }
  const std::string& operand(const Node& node, size_t i) const { return name(*node.operands[i]); }

  std::string take_text() { return std::move(text_); }

 private:
  void append(std::string_view part) { text_ += part; }
  void append(char part) { text_ += part; }
  void append(int64_t part) { text_ += std::to_string(part); }
  void append(int part) { text_ += std::to_string(part); }
  void append(size_t part) { text_ += std::to_string(part); }

  std::string prefix_;
  std::string text_;
  std::vector<std::string> names_;
  int constants_ = 0;
};

inline std::string tensor_type(const Node& node) { return tensor_type(node.dtype, node.shape); }
/// The type of operand i.
inline std::string operand_type(const Node& node, size_t i) { return tensor_type(*node.operands[i]); }
/// " : (operand types) -> type".
std::string signature(const Node& node);

}  // namespace lockstep::xla
