#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace lockstep::detail {

/// Internal: which of some tensors have memory in common. Kernels that write many tensors at once may write such
/// tensors in any order.
class MemoryExtents {
 public:
  /// Looks at the tensors; cheap where their memory is as before.
  void follow(size_t number, c10::function_ref<const at::Tensor&(size_t)> tensor);
  bool overlaps(size_t tensor) const { return overlaps_[tensor]; }

 private:
  /// Bytes [begin, end); none for tensors that are not strided.
  struct Extent {
    const char* begin = nullptr;
    const char* end = nullptr;

    bool operator==(const Extent& other) const { return begin == other.begin && end == other.end; }
  };
  static Extent extent_of(const at::Tensor& tensor);
  void find_overlaps();

  std::vector<Extent> extents_;
  std::vector<bool> overlaps_;
};

}  // namespace lockstep::detail
