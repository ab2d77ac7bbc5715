#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/xla/graph/emit.h"
#include "lockstep/xla/graph/text/types.h"

namespace lockstep::xla {

/// Inside: the text of a module while it is written, and the names that values have in it.
class Writer {
 public:
  Writer(const Trace& trace, const EmitOptions& options) : options(options), names_(trace.nodes.size()) {}

  const EmitOptions& options;

  template <typename... Parts>
  void put(const Parts&... parts) {
    (append(parts), ...);
  }
  /// `%n12 = stablehlo.<parts>` for a node, which gets this name.
  template <typename... Parts>
  void define(const Node& node, const Parts&... parts) {
    put(own_name(node), " = stablehlo.", parts..., "\n");
  }
  /// The same for an intermediate value; `suffix` tells it from others of the node. Returns its name.
  template <typename... Parts>
  std::string step(const Node& node, std::string_view suffix, const Parts&... parts) {
    std::string name = "%n" + std::to_string(node.index) + "_";
    name += suffix;
    put(name, " = stablehlo.", parts..., "\n");
    return name;
  }
  /// A constant of no dimensions; returns its name.
  std::string constant(Dtype dtype, std::string_view literal);

  /// Names the node, and returns the name.
  const std::string& own_name(const Node& node) { return rename(node, "%n" + std::to_string(node.index)); }
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

  std::string text_;
  std::vector<std::string> names_;
  int constants_ = 0;
};

/// The type of operand i.
inline std::string operand_type(const Node& node, size_t i) { return tensor_type(*node.operands[i]); }
/// " : (operand types) -> type".
std::string signature(const Node& node);

/// One operation of the module.
void write_operation(Writer& writer, const Node& node);
void write_window_operation(Writer& writer, const Node& node);
void write_index_operation(Writer& writer, const Node& node);
void write_product(Writer& writer, const Node& node);
void write_collective(Writer& writer, const Node& node);

}  // namespace lockstep::xla
