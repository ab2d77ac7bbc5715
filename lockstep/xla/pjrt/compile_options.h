#pragma once

#include <string>
#include <vector>

namespace lockstep::xla {

/// Returns XLA's serialized CompileOptionsProto for a program on `device_ids[replica][partition]`. More than one
/// partition: the program is written for one device, and Shardy cuts it.
std::string compile_options(const std::vector<std::vector<int>>& device_ids);

}  // namespace lockstep::xla
