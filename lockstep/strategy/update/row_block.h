#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/strategy/update/row_state.h"

/// Inside: LibTorch's optimizers on rows that were put together (see row_update.h).
namespace lockstep::detail {

/// A parameter of the size of a core's cache with gradient, state and optimizer: rows are copied in, updated as one
/// parameter, and copied out. Used by one thread at a time.
class RowBlock {
 public:
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor stand_in)>;

  /// Memory is allocated at the first use.
  RowBlock(at::ScalarType dtype, const MakeOptimizer& make);

  const torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  /// Largest number of elements.
  int64_t capacity() const { return capacity_; }

  /// Takes over a step's options.
  void begin_step(const RowState& state);
  /// Makes the block `size` elements long.
  void resize(int64_t size);
  /// Where rows are copied to, before `update`, and from, after it.
  void* parameter() const { return parameter_.data_ptr(); }
  void* gradient() const { return gradient_.data_ptr(); }
  void* field(int i) const { return fields_[i].data_ptr(); }
  void update(const RowState& state);

 private:
  void allocate(at::Tensor& tensor) const;

  int64_t capacity_;
  at::Tensor parameter_;
  at::Tensor gradient_;
  std::array<at::Tensor, StateFields::kMax> fields_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep::detail
