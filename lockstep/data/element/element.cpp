#include "lockstep/data/element/element.h"

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

void fail_structure(const Element& element) {
  std::string parts;
  for (const Leaf& leaf : element.leaves) parts += (parts.empty() ? "" : ", ") + describe(leaf);
  LOCKSTEP_THROW(c10::TypeError, "[data] the structure of the element does not match its C++ type: its parts are (",
                 parts, ")");
}

}  // namespace lockstep::data::detail
