#include "lockstep/train/losses/loss.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/wide_dtype.h"

namespace lockstep {
namespace {

at::Tensor total_of(const at::Tensor& losses) {
  const at::ScalarType dtype = detail::wide_dtype(losses.scalar_type());
  return losses.dim() == 0 ? losses.to(dtype) : losses.sum(dtype);
}

/// Multiplies the losses of each row by its weight.
at::Tensor weighted_rows(const at::Tensor& losses, const at::Tensor& weights, int64_t rows) {
  LOCKSTEP_CHECK_VALUE(weights.numel() == rows && weights.dim() > 0 && weights.size(0) == rows,
                       "[Trainer] there must be one weight for each row: rows=", rows, ", weights=", weights.sizes());
  if (rows == 0) return losses;
  return losses.reshape({rows, -1}) * weights.to(losses.scalar_type()).reshape({rows, 1});
}

/// Zero, with gradients to all outputs, so that replicas without rows make the collectives of backward.
at::Tensor zero_of(const Outputs& outputs) {
  at::Tensor zero = at::zeros({}, outputs.at(0).options().dtype(at::kFloat));
  for (const at::Tensor& output : outputs) {
    if (output.is_floating_point()) zero = zero + output.sum() * 0;
  }
  return zero;
}

}  // namespace

void Loss::check_single(const Outputs& outputs, const Batch& batch) {
  LOCKSTEP_CHECK_VALUE(outputs.size() == 1 && batch.targets.size() == 1,
                       "[Trainer] a loss of (output, target) needs one of each: outputs=", outputs.size(),
                       ", targets=", batch.targets.size(), "; use a loss of (const Outputs&, const Batch&)");
}

Loss::Term Loss::sum(const Outputs& outputs, const Batch& batch, const std::optional<at::Tensor>& weights) const {
  at::Tensor losses = function_(outputs, batch);
  const int64_t rows = batch.rows();
  LOCKSTEP_CHECK_VALUE(losses.is_floating_point(),
                       "[Trainer] a loss must be a floating-point tensor: dtype=", losses.scalar_type());
  if (counts()) {
    LOCKSTEP_CHECK_VALUE(!weights || losses.dim() > 0,
                         "[Trainer] a loss that is summed cannot be weighted; return the losses of the rows");
    if (weights) losses = weighted_rows(losses, *weights, rows);
    return {total_of(losses)};
  }
  if (reduction_ == LossReduction::None) {
    LOCKSTEP_CHECK_VALUE(losses.dim() > 0, "[Trainer] the loss of each example is needed, but the function returned a ",
                         "scalar; use Reduction::None in it, or say how it is reduced: Loss(fn, LossReduction::Mean)");
    const int64_t elements = losses.numel();
    LOCKSTEP_CHECK_VALUE(rows == 0 ? elements == 0 : elements % rows == 0,
                         "[Trainer] a loss must have the same number of values for each row: losses=", losses.sizes(),
                         ", rows=", rows);
    if (weights) losses = weighted_rows(losses, *weights, rows);
    return {total_of(losses), elements, rows == 0 ? 1 : elements / rows};
  }
  LOCKSTEP_CHECK_VALUE(losses.numel() == 1, "[Trainer] a reduced loss must be a scalar: losses=", losses.sizes());
  LOCKSTEP_CHECK_VALUE(!weights, "[Trainer] a reduced loss cannot be weighted; return a loss for each example");
  // The mean over no rows is not a number.
  if (rows == 0) return {zero_of(outputs), 0, 1};
  const at::Tensor value = total_of(losses.reshape({}));
  return {reduction_ == LossReduction::Mean ? value * rows : value, rows, 1};
}

}  // namespace lockstep
