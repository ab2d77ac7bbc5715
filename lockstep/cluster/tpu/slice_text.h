#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/tpu/topology.h"

namespace lockstep::tpu {

/// Reads sizes that are separated by "x" or ",": "4x4x2", "1,1,1,2". Throws `c10::ValueError` that names `name` where
/// there is anything else, or a size below 1.
LOCKSTEP_API std::vector<int> parse_sizes(const std::string& name, std::string_view text);

/// Makes a topology of a text: the name of a slice ("v3-32", "v5litepod-8"), or the sizes of its mesh ("4x4x2x2"),
/// where z and the cores of a chip may be left out and are then 1. Without `chips_per_host`, hosts are as such slices
/// have them. Throws `c10::ValueError` that says what is allowed.
LOCKSTEP_API Topology topology_from_text(std::string_view text, const std::vector<int>& chips_per_host = {});

}  // namespace lockstep::tpu
