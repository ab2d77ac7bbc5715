#include "tests/golden/differences/constants.h"

#include <algorithm>

namespace lockstep::golden {
namespace {

/// Tensors, slices and what is already one for each replica.
bool is_closed(const Json& value) {
  return value.is_null() || (value.is_object() && !value.contains("tuple") && !value.contains("dict"));
}

/// The children of a list, or of the tuple or mapping in an object.
const Json& children_of(const Json& value) {
  if (value.is_array()) return value;
  return value.contains("tuple") ? value["tuple"] : value["dict"];
}

}  // namespace

bool has_bare_constant(const Json& out) {
  if (is_closed(out)) return false;
  if (!out.is_structured()) return true;
  const Json& children = children_of(out);
  return std::any_of(children.begin(), children.end(), has_bare_constant);
}

Json with_constants_for_each_replica(const Json& out, size_t num_replicas, const std::string& kind) {
  if (is_closed(out)) return out;
  if (!out.is_structured()) return {{kind, Json(std::vector<Json>(num_replicas, out))}};
  Json children = children_of(out);
  for (Json& child : children) child = with_constants_for_each_replica(child, num_replicas, kind);
  return out.is_array() ? children : Json{{out.begin().key(), children}};
}

}  // namespace lockstep::golden
