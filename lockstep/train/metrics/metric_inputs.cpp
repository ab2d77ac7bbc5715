#include "lockstep/train/metrics/metric_inputs.h"

#include <vector>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/base/wide_dtype.h"

namespace lockstep::metrics {
namespace {

bool is_integer(const at::Tensor& tensor) { return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false); }

bool has_class_index_shape(const MetricBatch& batch) {
  const at::IntArrayRef outputs = batch.output.sizes();
  const at::IntArrayRef targets = batch.target.sizes();
  const at::IntArrayRef wanted = outputs.slice(0, outputs.size() - 1);
  if (targets == wanted) return true;
  return targets.size() == outputs.size() && targets.back() == 1 && targets.slice(0, targets.size() - 1) == wanted;
}

}  // namespace

void check_same_shapes(const Metric& metric, const MetricBatch& batch) {
  LOCKSTEP_CHECK_VALUE(batch.target.defined(), "[metrics] this metric needs a target: metric=", metric.name());
  LOCKSTEP_CHECK_VALUE(batch.output.dim() > 0 && batch.output.sizes() == batch.target.sizes(),
                       "[metrics] output and target must have the same shape, with rows: metric=", metric.name(),
                       ", output=", batch.output.sizes(), ", target=", batch.target.sizes(),
                       "; nothing is broadcast: reshape one of them");
  LOCKSTEP_CHECK_VALUE(!batch.output.is_complex() && !batch.target.is_complex(),
                       "[metrics] output and target must be real: metric=", metric.name(),
                       ", output=", dtype_name(batch.output.scalar_type()),
                       ", target=", dtype_name(batch.target.scalar_type()));
}

void check_scores(const Metric& metric, const MetricBatch& batch) {
  LOCKSTEP_CHECK_VALUE(batch.target.defined(), "[metrics] this metric needs a target: metric=", metric.name());
  LOCKSTEP_CHECK_VALUE(batch.output.dim() > 1 && batch.output.size(-1) > 0 && batch.output.is_floating_point(),
                       "[metrics] the output must be a score for each class, [..., classes]: metric=", metric.name(),
                       ", output=", batch.output.sizes(), " ", dtype_name(batch.output.scalar_type()),
                       ", target=", batch.target.sizes());
}

void check_class_indices(const Metric& metric, const MetricBatch& batch) {
  LOCKSTEP_CHECK_VALUE(has_class_index_shape(batch),
                       "[metrics] there must be one class index for each list of scores: metric=", metric.name(),
                       ", output=", batch.output.sizes(), ", target=", batch.target.sizes());
  LOCKSTEP_CHECK_VALUE(is_integer(batch.target), "[metrics] class indices must be integers: metric=", metric.name(),
                       ", target=", batch.target.sizes(), " ", dtype_name(batch.target.scalar_type()),
                       "; convert it, or use the metric for one-hot targets");
}

void check_weights(const Metric& metric, const MetricBatch& batch) {
  if (!batch.weights.defined()) return;
  const bool is_scalar = batch.output.dim() == 0;
  const bool fits = is_scalar ? batch.weights.numel() == 1
                              : batch.weights.dim() == 1 && batch.weights.size(0) == batch.output.size(0);
  LOCKSTEP_CHECK_VALUE(fits && !batch.weights.is_complex(),
                       "[metrics] there must be one real weight for each row: metric=", metric.name(),
                       ", output=", batch.output.sizes(), ", weights=", batch.weights.sizes(), " ",
                       dtype_name(batch.weights.scalar_type()));
}

at::Tensor not_narrow(const at::Tensor& tensor) { return tensor.to(detail::wide_dtype(tensor.scalar_type())); }

at::Tensor class_indices(const MetricBatch& batch) {
  return batch.target.dim() == batch.output.dim() ? batch.target.squeeze(-1) : batch.target;
}

at::Tensor element_weights(const at::Tensor& weights, const at::Tensor& values) {
  std::vector<int64_t> sizes(static_cast<size_t>(values.dim()), 1);
  if (!sizes.empty()) sizes[0] = values.size(0);
  return weights.to(at::kDouble).reshape(sizes).expand_as(values);
}

at::Tensor element_weights_or_ones(const at::Tensor& weights, const at::Tensor& values) {
  if (weights.defined()) return element_weights(weights, values);
  return at::ones(values.sizes(), values.options().dtype(at::kDouble));
}

at::Tensor count_weighted(const at::Tensor& elements, const at::Tensor& weights) {
  if (!weights.defined()) return elements.sum();
  return elements.logical_and(element_weights(weights, elements).ne(0)).sum();
}

at::Tensor weighted_values(const at::Tensor& values, const at::Tensor& weights) {
  return values.to(at::kDouble).mul(weights).masked_fill(weights.eq(0), 0);
}

}  // namespace lockstep::metrics
