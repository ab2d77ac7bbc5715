#pragma once

#include <string>

#include "lockstep/xla/graph/layout.h"

namespace lockstep::xla {

/// Inside: the mesh of a module for the Shardy partitioner; replicas are an axis of it where there are several.
std::string mesh_text(int replicas, int partitions);
/// A layout of a value with `rank` dimensions on that mesh: `<@mesh, [{"x"}, {}]>`.
std::string layout_text(LayoutPtr layout, size_t rank, int partitions);

}  // namespace lockstep::xla
