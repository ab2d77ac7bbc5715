#pragma once

#include <utility>
#include <vector>

#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/element.h"

/// Internal: the mapped files of the last element that a program got, whose bytes it may have read since.
namespace lockstep::data::detail {

using MappedBuffers = std::vector<c10::intrusive_ptr<Buffer>>;

inline void add_mapped(const Leaf& leaf, MappedBuffers& buffers) {
  if (const auto* bytes = leaf.as<Bytes>()) {
    const auto& buffer = bytes->buffer();
    const bool is_last = !buffers.empty() && buffers.back() == buffer;
    if (buffer && buffer->may_fail() && !is_last) buffers.push_back(buffer);
  } else if (const auto* list = leaf.as<LeafList>()) {
    for (const Leaf& each : *list->leaves) add_mapped(each, buffers);
  }
}

inline void add_mapped(const Element& element, MappedBuffers& buffers) {
  for (const Leaf& leaf : element.leaves) add_mapped(leaf, buffers);
}

/// Throws DataError where bytes could not be read: the program has read zeros. Removes the buffers.
inline void check_mapped(MappedBuffers& buffers) {
  if (!any_bus_error()) return buffers.clear();
  for (const auto& buffer : std::exchange(buffers, {})) buffer->check();
}

}  // namespace lockstep::data::detail
