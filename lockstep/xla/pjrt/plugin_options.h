#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::xla {

/// Options of a plugin's client and their values, by name: {"memory_fraction", 0.5}. Each plugin has its own names and
/// types: bool, integer, floating point, text, list of integers.
using PluginOption = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;
using PluginOptions = std::map<std::string, PluginOption>;

/// "memory_fraction=0.5, preallocate=false".
std::string plugin_options_text(const PluginOptions& options);

}  // namespace lockstep::xla
