#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::xla {

/// Options of the compiler (fields of XLA's DebugOptions) and their values as text: "true", "3", "0.5", "name".
using CompilerOptions = std::map<std::string, std::string>;

/// Returns XLA's serialized CompileOptionsProto for a program on `device_ids[replica][partition]`. With
/// several partitions, the program is written for one device and Shardy partitions it. On CPUs, minimum and maximum
/// propagate NaN, as in LibTorch, at the cost of XLA's fast version. `exact`: conversions to narrower types round, even
/// where the compiler could skip them. `options` override both.
std::string compile_options(const std::vector<std::vector<int>>& device_ids, bool on_cpu, bool exact,
                            const CompilerOptions& options);

}  // namespace lockstep::xla
