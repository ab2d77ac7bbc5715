#include "lockstep/strategy/optimizer/update/rows/row_block.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/update/update_plan.h"

namespace lockstep::detail {
namespace {

/// LibTorch computes the last elements of a tensor, too few for a vector register, with other instructions, whose bits
/// may differ. Blocks are padded to a multiple of this, so that bits do not depend on the position in a block.
constexpr int64_t kPadding = 128;
/// From this size on LibTorch divides an operation among threads.
constexpr int64_t kParallelSize = 32768;

int64_t padded(int64_t size) { return (size + kPadding - 1) / kPadding * kPadding; }

}  // namespace

RowBlock::RowBlock(at::ScalarType dtype, const MakeOptimizer& make)
    : capacity_(std::min(kMaxChunkBytes / static_cast<int64_t>(c10::elementSize(dtype)), kParallelSize) - kPadding),
      parameter_(at::empty({0}, dtype)),
      gradient_(at::empty({0}, dtype)) {
  parameter_.mutable_grad() = gradient_;
  optimizer_ = make(parameter_);
}

void RowBlock::begin_step(const RowState& state) {
  allocate(parameter_);
  allocate(gradient_);
  for (int i = 0; i < StateFields::kMax; ++i) {
    if (state.uses(i)) allocate(fields_[i]);
  }
  optimizer_->param_groups()[0].set_options(state.options().clone());
  if (optimizer_->state().empty() && state.num_used() > 0) optimizer_->step();  // creates the state that `update` fills
}

/// Gives a tensor memory for the largest block, and the size that the others have.
void RowBlock::allocate(at::Tensor& tensor) const {
  if (tensor.defined() && tensor.numel() > 0) return;
  const int64_t size = parameter_.numel() > 0 ? parameter_.numel() : capacity_;
  point_at(tensor, at::zeros({capacity_}, parameter_.options()), 0, size);
}

void RowBlock::resize(int64_t size) {
  if (parameter_.numel() == padded(size)) return;
  point_at(parameter_, parameter_, 0, padded(size));
  point_at(gradient_, gradient_, 0, padded(size));
  for (at::Tensor& field : fields_) {
    if (field.defined()) point_at(field, field, 0, padded(size));
  }
}

void RowBlock::update(const RowState& state) {
  if (state.num_used() > 0) {
    const StateFields fields = state_fields(state.rule(), *optimizer_->state().begin()->second, state.options());
    for (int i = 0; i < StateFields::kMax; ++i) {
      if (fields.tensors[i] != nullptr) *fields.tensors[i] = fields_[i];
    }
    if (fields.step != nullptr) *fields.step = state.steps_before();
  }
  optimizer_->step();
}

}  // namespace lockstep::detail
