#include "lockstep/xla/graph/trace_difference.h"

#include <algorithm>

namespace lockstep::xla {
namespace {

LayoutPtr compared_layout(const Node& node) {
  return node.op == Op::Argument && node.data != nullptr ? node.data->layout : node.layout;
}

bool same_operands(const Node& a, const Node& b) {
  return std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(),
                    [](const Value& x, const Value& y) { return x->index == y->index; });
}

/// Whether both have no region, or regions with the same operations.
bool same_regions(const Node& a, const Node& b) {
  if (a.region == nullptr || b.region == nullptr) return a.region == b.region;
  return a.region->trace.skeleton == b.region->trace.skeleton;
}

/// Whether the operations are equal apart from sizes.
bool same_operation(const Node& a, const Node& b) {
  const auto skip = static_cast<ptrdiff_t>(num_size_attributes(a));
  return a.op == b.op && a.kind == b.kind && a.dtype == b.dtype && a.always_argument == b.always_argument &&
         a.shape.size() == b.shape.size() && compared_layout(a) == compared_layout(b) &&
         a.attributes.size() == b.attributes.size() &&
         std::equal(a.attributes.begin() + skip, a.attributes.end(), b.attributes.begin() + skip) &&
         same_operands(a, b) && same_regions(a, b);
}

bool same_sizes(const Node& a, const Node& b) {
  return a.shape == b.shape && a.attributes == b.attributes && (a.region == nullptr || a.region->key == b.region->key);
}

std::string described(const Trace& trace, size_t position) {
  return position < trace.nodes.size() ? describe(*trace.nodes[position]) : "nothing";
}

/// Describes a result by its operation.
std::string described_result(const Trace& trace, size_t i) {
  if (i >= trace.results.size()) return "nothing";
  return "result " + std::to_string(i) + ": " + describe(*trace.results[i].value);
}

std::optional<TraceDifference> first_different_result(const Trace& a, const Trace& b) {
  const size_t count = std::max(a.results.size(), b.results.size());
  for (size_t i = 0; i < count; ++i) {
    const bool same = i < a.results.size() && i < b.results.size() &&
                      a.results[i].value->index == b.results[i].value->index &&
                      a.results[i].layout == b.results[i].layout;
    if (!same) {
      return TraceDifference{.sizes_only = false,
                             .position = a.nodes.size(),
                             .first = described_result(a, i),
                             .second = described_result(b, i)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<TraceDifference> first_difference(const Trace& first, const Trace& second) {
  const auto at = [&](size_t position, bool sizes_only) {
    return TraceDifference{.sizes_only = sizes_only,
                           .position = position,
                           .first = described(first, position),
                           .second = described(second, position)};
  };
  const size_t shorter = std::min(first.nodes.size(), second.nodes.size());
  std::optional<size_t> other_sizes;
  for (size_t i = 0; i < shorter; ++i) {
    if (!same_operation(*first.nodes[i], *second.nodes[i])) return at(i, false);
    if (!other_sizes && !same_sizes(*first.nodes[i], *second.nodes[i])) other_sizes = i;
  }
  if (first.nodes.size() != second.nodes.size()) return at(shorter, false);
  if (auto difference = first_different_result(first, second)) return difference;
  if (other_sizes) return at(*other_sizes, true);
  return std::nullopt;
}

}  // namespace lockstep::xla
