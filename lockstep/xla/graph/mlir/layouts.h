#pragma once

#include <string>

#include "lockstep/xla/graph/layout.h"

namespace lockstep::xla {

/// Internal: the device mesh of a module for the Shardy partitioner. Several replicas are an axis of their own.
std::string mesh_text(int replicas, int partitions);
/// The layout of a value with `rank` dimensions on that mesh: `<@mesh, [{"x"}, {}]>`.
std::string layout_text(LayoutPtr layout, size_t rank, int partitions);

}  // namespace lockstep::xla
