#include <algorithm>
#include <vector>

#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::topology {

namespace {

bool has_negative(const Json& numbers) {
  if (!numbers.is_array()) return numbers.is_number() && numbers < 0;
  return std::any_of(numbers.begin(), numbers.end(), has_negative);
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"negative coordinate", "topology",
                   [](const Case& c) { return c.call == "topology" && has_negative(c.in.at("device_coordinates")); },
                   "counts it from the end of the axis, and writes bytes that it cannot read", "IndexError",
                   "coordinates outside the mesh are an error", expect_error("IndexError", "coordinates=[-1 0 0 0]")});
}

}  // namespace lockstep::golden::rules::topology
