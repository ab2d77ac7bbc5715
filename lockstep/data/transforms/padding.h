#pragma once

#include <vector>

#include "lockstep/data/element.h"
#include "lockstep/data/spec.h"

/// Inside: how tensors of different sizes become one batch.
namespace lockstep::data::detail {

/// What elements are padded to, and with what.
struct Padding {
  /// For each leaf; empty: every dimension is padded to the largest of the batch. A dimension that is not known here
  /// is.
  std::vector<PartialShape> shapes;
  /// One for each leaf, or one for all.
  std::vector<double> values;
  bool pin_memory = false;
  /// Named in messages.
  const char* operation = "padded_batch";
};

/// Joins the elements, one at least, into `batch`. Tensors are padded at their ends; what no tensor can hold becomes a
/// list.
void pad_and_join(std::vector<Element>& elements, const Padding& padding, Element& batch);

/// What is known of a batch of padded elements; `rows` is its size, where that is known.
ElementSpec padded_spec(const ElementSpec& spec, const std::vector<PartialShape>& shapes, PartialShape::Dim rows);

}  // namespace lockstep::data::detail
