#pragma once

#include <memory>
#include <vector>

#include "lockstep/data/element/element.h"
#include "lockstep/data/element/spec.h"
#include "lockstep/device/host_copier.h"

/// Internal: joins tensors of different sizes into one batch.
namespace lockstep::data::detail {

/// Target shapes and padding values.
struct Padding {
  /// For each leaf. Empty, or unknown dimensions: the largest size in the batch.
  std::vector<PartialShape> shapes;
  /// One for each leaf, or one for all.
  std::vector<double> values;
  bool pin_memory = false;
  /// Joins large batches on several threads, if it is not null.
  std::shared_ptr<lockstep::detail::HostCopier> copier = nullptr;
  /// Named in messages.
  const char* operation = "padded_batch";
};

/// Throws ValueError where an element is larger than what it is padded to.
void check_fits(const Element& element, const Padding& padding);

/// Joins the elements, at least one, into `batch`. Tensors are padded at their ends; other values become a list.
void pad_and_join(std::vector<Element>& elements, const Padding& padding, Element& batch);

/// Returns the spec of a batch of padded elements; `rows` is its size, where that is known.
ElementSpec padded_spec(const ElementSpec& spec, const std::vector<PartialShape>& shapes, PartialShape::Dim rows);

}  // namespace lockstep::data::detail
