#pragma once

#include <map>
#include <string>

namespace lockstep::xla {

/// How the programs of one run are compiled.
struct RunSettings {
  /// Whether sizes may differ from those of earlier runs of the same operations; smaller ones are padded.
  bool pads_rows = true;
  /// Whether sizes that change are padded to powers of two.
  bool pads_to_powers_of_two = false;
  /// Options of the compiler, by name.
  std::map<std::string, std::string> compiler_options;
};

}  // namespace lockstep::xla
