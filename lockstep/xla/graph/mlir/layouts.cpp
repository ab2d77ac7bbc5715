#include "lockstep/xla/graph/mlir/layouts.h"

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

/// The part of the mesh axis that splits a dimension: `"x":(before)parts`, where `before` is the number of parts that
/// the dimensions before it are split into.
std::string axis_text(int64_t before, int64_t parts, int partitions) {
  if (parts == 1) return "";
  if (parts == partitions) return "\"x\"";
  return "\"x\":(" + std::to_string(before) + ")" + std::to_string(parts);
}

}  // namespace

std::string mesh_text(int replicas, int partitions) {
  const std::string of_replicas = replicas > 1 ? "\"replica\"=" + std::to_string(replicas) + ", " : "";
  return "sdy.mesh @mesh = <[" + of_replicas + "\"x\"=" + std::to_string(partitions) + "]>\n";
}

std::string layout_text(LayoutPtr layout, size_t rank, int partitions) {
  const bool tiled = is_tiled(layout);
  LOCKSTEP_ASSERT(!tiled || layout->tiles.size() == rank, "tiles=", at::IntArrayRef(layout->tiles), ", rank=", rank);
  int64_t parts = 1;
  std::string text = "<@mesh, [";
  for (size_t dim = 0; dim < rank; ++dim) {
    const int64_t tiles = tiled ? layout->tiles[dim] : 1;
    text += dim > 0 ? ", {" : "{";
    text += axis_text(parts, tiles, partitions) + "}";
    parts *= tiles;
  }
  LOCKSTEP_CHECK_VALUE(!tiled || parts == partitions,
                       "[xla] a tensor must be split into as many tiles as there are logical devices: tiles=",
                       at::IntArrayRef(layout->tiles), ", logical devices=", partitions);
  return text + "]>";
}

}  // namespace lockstep::xla
