#pragma once

#include <cstdint>
#include <vector>

#include <c10/util/ArrayRef.h>

#include "lockstep/api.h"

namespace lockstep::xla {

/// How a tensor is placed on the logical devices of a replica. Layouts are interned: equal layouts are one object,
/// which lives as long as the process. A null pointer means that every logical device has the whole tensor.
struct Layout {
  enum class Kind {
    /// Split into `tiles[d]` equal parts along dimension d. Tiles are numbered in row-major order; tile i is on logical
    /// device i.
    Tiled,
    /// The whole tensor on each logical device; a null layout leaves the choice to the partitioner.
    Replicated,
    /// The whole tensor on one logical device.
    Assigned,
  };
  Kind kind = Kind::Replicated;
  std::vector<int64_t> tiles;
  int logical_device = 0;

  bool operator<(const Layout& other) const;
};

using LayoutPtr = const Layout*;

LOCKSTEP_API LayoutPtr tiled_layout(at::IntArrayRef tiles);
LOCKSTEP_API LayoutPtr replicated_layout();
LOCKSTEP_API LayoutPtr assigned_layout(int logical_device);

/// Whether each logical device has one tile.
inline bool is_tiled(LayoutPtr layout) { return layout != nullptr && layout->kind == Layout::Kind::Tiled; }

}  // namespace lockstep::xla
