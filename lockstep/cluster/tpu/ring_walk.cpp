#include "lockstep/cluster/tpu/ring_walk.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::tpu {
namespace {

struct SheetPlace {
  int column = 0;
  int row = 0;
};

/// Returns the walk around a sheet without its corner (0, 0), which lies before its first and after its last place:
/// rows snake over all columns but the first, which leads back.
std::vector<SheetPlace> loop_without_corner(int width, int height) {
  std::vector<SheetPlace> walk;
  for (int row = 0; row < height; ++row) {
    for (int step = 1; step < width; ++step) walk.push_back({row % 2 == 0 ? step : width - step, row});
  }
  for (int row = height - 1; row > 0; --row) walk.push_back({0, row});
  return walk;
}

std::vector<ChipPlace> scan(const std::array<int, 3>& sizes) {
  std::vector<ChipPlace> walk;
  for (int z = 0; z < sizes[2]; ++z) {
    for (int y = 0; y < sizes[1]; ++y) {
      for (int x = 0; x < sizes[0]; ++x) walk.push_back({x, y, z});
    }
  }
  return walk;
}

/// Around a box with one size of 1.
std::vector<ChipPlace> ring_of_sheet(const std::array<int, 3>& sizes) {
  const size_t column_axis = sizes[0] > 1 ? 0 : 1;
  const size_t row_axis = sizes[2] > 1 ? 2 : 1;
  std::vector<ChipPlace> walk{{0, 0, 0}};
  for (const SheetPlace& place : loop_without_corner(sizes[column_axis], sizes[row_axis])) {
    ChipPlace chip{};
    chip[column_axis] = place.column;
    chip[row_axis] = place.row;
    walk.push_back(chip);
  }
  return walk;
}

/// Sheet by sheet, every second one backwards, and back along the column of their corners.
std::vector<ChipPlace> ring_of_box(const std::array<int, 3>& sizes) {
  std::vector<SheetPlace> sheet = loop_without_corner(sizes[0], sizes[1]);
  std::vector<ChipPlace> walk{{0, 0, 0}};
  for (int z = 0; z < sizes[2]; ++z) {
    for (const SheetPlace& place : sheet) walk.push_back({place.column, place.row, z});
    std::reverse(sheet.begin(), sheet.end());
  }
  for (int z = sizes[2] - 1; z > 0; --z) walk.push_back({0, 0, z});
  return walk;
}

}  // namespace

std::vector<ChipPlace> ring_walk(const std::array<int, 3>& sizes) {
  const auto num_flat = std::count(sizes.begin(), sizes.end(), 1);
  const bool has_odd = std::any_of(sizes.begin(), sizes.end(), [](int size) { return size > 1 && size % 2 == 1; });
  if (num_flat >= 2 || has_odd) return scan(sizes);
  return num_flat == 1 ? ring_of_sheet(sizes) : ring_of_box(sizes);
}

}  // namespace lockstep::tpu
