#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/strategy/optimizer/update/rows/row_state.h"

/// Internal: LibTorch's optimizers on gathered rows (see row_update.h).
namespace lockstep::detail {

/// A parameter that fits into a core's cache, with gradient, state and optimizer: rows are gathered into it, updated as
/// one parameter, and scattered. Used by one thread at a time.
class RowBlock {
 public:
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor stand_in)>;

  /// Memory is allocated at the first use.
  RowBlock(at::ScalarType dtype, const MakeOptimizer& make);

  const torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  /// Largest number of elements.
  int64_t capacity() const { return capacity_; }

  /// Sets the options of a step.
  void begin_step(const RowState& state);
  /// Makes the block `size` elements long.
  void resize(int64_t size);
  /// Where rows are copied before `update`, and from where after it.
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
