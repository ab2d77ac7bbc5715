#pragma once

#include <vector>

#include "lockstep/base/nest.h"

namespace lockstep::data {

/// A batch of what no tensor can hold: texts, bytes, values of a user's own type. A vector in every respect, but one
/// value to a pipeline: `batch` makes it, and it is split over replicas as the tensors beside it are.
template <class T>
struct List : std::vector<T> {
  using std::vector<T>::vector;
};

}  // namespace lockstep::data

template <class T>
struct lockstep::nest::Visit<lockstep::data::List<T>> {
  static constexpr bool kIsLeaf = true;
};
