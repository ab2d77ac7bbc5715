#include "lockstep/strategy/losses.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {
namespace {

at::Tensor floating(const at::Tensor& loss) {
  return loss.is_floating_point() || loss.is_complex() ? loss : loss.to(at::kDouble);
}

at::Tensor weighted(const at::Tensor& loss, const at::Tensor& weight) {
  at::Tensor factor = weight.to(loss.options());
  const int64_t more_dimensions = factor.dim() - loss.dim();
  if (factor.dim() > 0 && more_dimensions == -1) factor = factor.unsqueeze(-1);
  const bool is_column = more_dimensions == 1 && factor.size(-1) == 1;
  if (is_column) factor = factor.squeeze(-1);
  LOCKSTEP_CHECK_VALUE((is_column || more_dimensions != 1) && at::are_expandable(loss.sizes(), factor.sizes()),
                       "[average_loss] the weights do not fit the losses: losses=", loss.sizes(),
                       ", weights=", weight.sizes());
  return loss * factor;
}

/// Collective: returns the number of rows of all replicas, at least 1.
at::Tensor rows_of_all_replicas(const at::Tensor& loss) {
  const bool is_double = c10::toRealValueType(loss.scalar_type()) == at::kDouble;
  at::Tensor rows;
  if (loss.is_cuda()) {  // a copy from the host would wait for the GPU
    const at::TensorOptions options = at::device(loss.device()).dtype(is_double ? at::kDouble : at::kFloat);
    rows = at::full({}, static_cast<double>(loss.size(0)), options);
  } else {
    rows = at::scalar_tensor(loss.size(0), at::TensorOptions(at::kFloat)).to(loss.device());
    if (is_double) rows = rows.to(at::kDouble);
  }
  if (get_strategy().num_replicas_in_sync() > 1) rows = get_replica_context().all_reduce("sum", rows);
  return at::clamp_min(rows, 1);
}

/// In single precision for narrower types, which cannot hold large numbers of rows.
at::Tensor divide_by_rows(const at::Tensor& loss) {
  const bool is_narrow = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  const at::Tensor rows = rows_of_all_replicas(loss);
  if (!is_narrow) return loss.sum() / rows;
  return (loss.sum(at::kFloat) / rows).to(loss.scalar_type());
}

at::Tensor divide_by_batch(const at::Tensor& sum, int64_t batch_size) {
  if (batch_size > 0) return sum / batch_size;
  return sum.masked_fill(at::ones({}, sum.options().dtype(at::kBool)), 0);  // 0 for any sum, also the gradient
}

}  // namespace

at::Tensor average_loss(const at::Tensor& per_example_loss, std::optional<int64_t> global_batch_size,
                        const std::optional<at::Tensor>& sample_weight) {
  LOCKSTEP_CHECK_VALUE(per_example_loss.dim() > 0,
                       "[average_loss] needs one loss for each example, but got a scalar; use ",
                       "at::Reduction::None in the loss function");
  LOCKSTEP_CHECK_VALUE(
      !global_batch_size || *global_batch_size >= 0,
      "[average_loss] the global batch size must not be negative: global_batch_size=", *global_batch_size);
  at::Tensor loss = floating(per_example_loss);
  if (sample_weight) loss = weighted(loss, *sample_weight);
  if (!global_batch_size) {
    LOCKSTEP_CHECK_CONTEXT(!in_cross_replica_context(),
                           "[average_loss] in cross-replica context the global batch size must be given");
    return divide_by_rows(loss);
  }
  // One kernel of a GPU in place of two, and one in backward.
  if (loss.is_cuda() && loss.numel() == *global_batch_size && loss.numel() > 0) return loss.mean();
  return divide_by_batch(loss.sum(), *global_batch_size);
}

at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss) {
  LOCKSTEP_CHECK_CONTEXT(!in_cross_replica_context(),
                         "[scale_regularization_loss] must be called inside the function given to `run`");
  return floating(regularization_loss).sum() / get_strategy().num_replicas_in_sync();
}

}  // namespace lockstep
