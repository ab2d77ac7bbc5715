#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/function.h"
#include "lockstep/data/static_spec.h"

namespace lockstep::data {

namespace detail {
LOCKSTEP_API std::function<void(Element& in, Element& out)> pick_fields(std::vector<std::string> names);
}  // namespace detail

/// Returns the function for `map` that makes a T of named parts: `names` are those of its leaves, in order.
///
/// ```
/// auto train = data::tfrecords(files)
///                  .map(data::parse_example(features))                                       // Dataset<Named>
///                  .map(data::fields<std::tuple<torch::Tensor, torch::Tensor>>({"image", "label"}));
/// ```
///
/// Nothing is copied, and no tensor is made. A name that an element does not have throws ValueError that lists its
/// names.
template <class T>
ElementMap<T> fields(std::vector<std::string> names) {
  return {detail::pick_fields(std::move(names)), detail::static_spec<T>()};
}

}  // namespace lockstep::data
