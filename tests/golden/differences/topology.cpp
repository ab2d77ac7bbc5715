#include <vector>

#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::topology {

void add(std::vector<Difference>& table) {
  table.push_back({"coordinate below 0", "topology",
                   [](const Case& c) { return c.id == "topology_wrong/coords_negative"; },
                   "counts it from the end of the axis, and writes bytes that it cannot read again", "IndexError",
                   "a place is in the mesh or it is not", expect_error("IndexError", "coordinates=[-1 0 0 0]")});
}

}  // namespace lockstep::golden::rules::topology
