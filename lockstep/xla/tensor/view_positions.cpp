#include "lockstep/xla/tensor/view_positions.h"

#include <optional>

namespace lockstep::xla {
namespace {

/// The position of the slice or selection that makes a view of another one; nothing if it is made in another way.
std::optional<Position> position_of_slice(const ViewShape& whole, const ViewShape& view) {
  const int64_t distance = view.offset - whole.offset;
  const size_t rank = whole.size.size();
  const size_t rest = view.size.size() + 1 == rank ? 0 : 1;  // a selection leaves nothing of the dimension
  if (view.size.size() + 1 != rank + rest || rank == 0) return std::nullopt;
  size_t dim = 0;
  while (dim + 1 < rank && whole.size[dim] == view.size[dim] && whole.stride[dim] == view.stride[dim]) ++dim;
  const bool others_are_equal = whole.size.slice(dim + 1) == view.size.slice(dim + rest) &&
                                whole.stride.slice(dim + 1) == view.stride.slice(dim + rest);
  if (!others_are_equal) return std::nullopt;
  const int64_t unit = whole.stride[dim];
  if (unit <= 0 || distance < 0 || distance % unit != 0) return std::nullopt;
  int64_t length = 1;
  if (rest == 1) {
    if (view.size[dim] == 0 || view.stride[dim] < unit || view.stride[dim] % unit != 0) return std::nullopt;
    length = (view.size[dim] - 1) * (view.stride[dim] / unit) + 1;
  }
  const Position position{0, distance / unit, unit, whole.size[dim] - length};
  if (position.most <= 0 || position.value > position.most) return std::nullopt;
  return position;
}

}  // namespace

ViewPositions::Known* ViewPositions::find(const ViewShape& view) {
  const auto [begin, end] = views_.equal_range(view.offset);
  for (auto known = begin; known != end; ++known) {
    if (Ints(known->second.size) == view.size && Ints(known->second.stride) == view.stride) return &known->second;
  }
  return nullptr;
}

Positions ViewPositions::of(const ViewShape& view) const {
  const Known* known = const_cast<ViewPositions*>(this)->find(view);
  return known == nullptr ? Positions{} : known->positions;
}

bool ViewPositions::note(const ViewShape& of_view, const ViewShape& view) {
  Positions positions = of(of_view);
  if (const auto slice = position_of_slice(of_view, view)) positions.push_back(*slice);
  Known* known = find(view);
  if (known == nullptr) {
    views_.emplace(view.offset, Known{Shape(view.size.begin(), view.size.end()),
                                      Shape(view.stride.begin(), view.stride.end()), std::move(positions)});
    return true;
  }
  if (known->positions == positions) return true;
  known->positions.clear();
  return false;
}

}  // namespace lockstep::xla
