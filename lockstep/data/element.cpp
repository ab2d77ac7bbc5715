#include "lockstep/base/error.h"
#include "lockstep/data/named.h"

namespace lockstep::data {
namespace detail {

void fail_structure(const Element& element) {
  std::string parts;
  for (const Leaf& leaf : element.leaves) parts += (parts.empty() ? "" : ", ") + describe(leaf);
  LOCKSTEP_CHECK_TYPE(false, "[data] the element has another structure than the program says: its parts are (", parts,
                      ")");
  LOCKSTEP_ASSERT(false);
}

}  // namespace detail

const Leaf& Named::leaf(std::string_view name) const {
  const auto found = parts_.find(name);
  if (found != parts_.end()) return found->second;
  std::string known;
  for (const auto& part : parts_) known += (known.empty() ? "" : ", ") + part.first;
  LOCKSTEP_CHECK_VALUE(false, "[Named] the element has no part of this name: name=\"", name, "\"; it has: ", known);
  LOCKSTEP_ASSERT(false);
}

std::vector<std::string> Named::names() const {
  std::vector<std::string> names;
  for (const auto& part : parts_) names.push_back(part.first);
  return names;
}

}  // namespace lockstep::data
