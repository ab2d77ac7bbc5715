#pragma once

#include <string>
#include <vector>

namespace lockstep::xla {

/// Returns XLA's serialized CompileOptionsProto for a program on `device_ids[replica][partition]`. More than one
/// partition: the program is written for one device, and Shardy cuts it. On CPUs XLA's minimum and maximum would lose
/// NaN for speed; here they keep it, as LibTorch's do. `exact`: what is converted to a narrower type is rounded, also
/// where the compiler could spare it.
std::string compile_options(const std::vector<std::vector<int>>& device_ids, bool on_cpu, bool exact);

}  // namespace lockstep::xla
