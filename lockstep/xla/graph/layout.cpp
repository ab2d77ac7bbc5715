#include "lockstep/xla/graph/layout.h"

#include <mutex>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

LayoutPtr interned(Layout layout) {
  // Never destroyed: values may point to layouts until the process ends.
  static auto* mutex = new std::mutex;
  static auto* layouts = new std::set<Layout>;
  const std::lock_guard lock(*mutex);
  return &*layouts->insert(std::move(layout)).first;
}

}  // namespace

bool Layout::operator<(const Layout& other) const {
  return std::tie(kind, tiles, logical_device) < std::tie(other.kind, other.tiles, other.logical_device);
}

LayoutPtr tiled_layout(at::IntArrayRef tiles) {
  for (const int64_t parts : tiles) {
    LOCKSTEP_CHECK_VALUE(parts > 0, "[tiled_layout] a dimension is split into at least one tile: tiles=", tiles);
  }
  return interned({.kind = Layout::Kind::Tiled, .tiles = tiles.vec()});
}

LayoutPtr replicated_layout() {
  static const LayoutPtr layout = interned({.kind = Layout::Kind::Replicated, .tiles = {}});
  return layout;
}

LayoutPtr assigned_layout(int logical_device) {
  LOCKSTEP_CHECK_VALUE(logical_device >= 0,
                       "[assigned_layout] logical devices count from 0: logical_device=", logical_device);
  return interned({.kind = Layout::Kind::Assigned, .tiles = {}, .logical_device = logical_device});
}

}  // namespace lockstep::xla
