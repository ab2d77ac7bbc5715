#pragma once

#include <array>
#include <vector>

namespace lockstep::tpu {

/// The place of a chip, or of a block of chips: x, y, z.
using ChipPlace = std::array<int, 3>;

/// Returns all places of a box in the order of a ring: each is next to the one before, and the last to the first.
///
/// There is such a ring only where every size above 1 is even, and two are above 1. With a single size above 1 the walk
/// is a line; with an odd size above 1 it is a scan, x fastest, then y, z, whose steps may be longer.
std::vector<ChipPlace> ring_walk(const std::array<int, 3>& sizes);

}  // namespace lockstep::tpu
