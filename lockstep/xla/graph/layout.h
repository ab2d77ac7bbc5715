#pragma once

#include <cstdint>
#include <vector>

#include <c10/util/ArrayRef.h>

#include "lockstep/api.h"

namespace lockstep::xla {

/// How a tensor lies on the logical devices of a replica. Layouts are interned: equal ones are the same object, and
/// live as long as the process. A null pointer means that every logical device has the whole.
struct Layout {
  enum class Kind {
    /// Cut into `tiles[d]` equal parts along dimension d, numbered row by row: part i is on logical device i.
    Tiled,
    /// The whole on each, asked for in so many words: the partitioner may not choose otherwise.
    Replicated,
    /// The whole on one logical device.
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

/// Whether parts of the tensor are on different devices.
inline bool is_tiled(LayoutPtr layout) { return layout != nullptr && layout->kind == Layout::Kind::Tiled; }

}  // namespace lockstep::xla
