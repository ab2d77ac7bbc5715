#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

/// Internal: by what a write to a tensor is recognized.
namespace lockstep::detail {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Returns the tensors with their first names, in order: a block that is registered under two names counts once.
NamedTensors distinct(const torch::OrderedDict<std::string, at::Tensor>& tensors);

/// The number of writes that LibTorch has counted.
uint32_t version_of(const at::Tensor& tensor);

/// A tensor as it was at some time: its version, memory, dtype and sizes. Values are not read.
///
/// Writes through `tensor.data()` or `data_ptr()` cannot be recognized, nor those of LibTorch's batch normalization to
/// its statistics, which it does not count.
class TensorMark {
 public:
  void take(const at::Tensor& tensor);
  /// `known_writes` since then do not count.
  bool is_of(const at::Tensor& tensor, uint32_t known_writes = 0) const;

 private:
  uint32_t version_ = 0;
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  /// Compared only: another tensor may have it.
  const c10::StorageImpl* storage_ = nullptr;
  std::vector<int64_t> sizes_;
};

}  // namespace lockstep::detail
