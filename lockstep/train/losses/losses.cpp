#include "lockstep/train/losses/losses.h"

#include <limits>
#include <memory>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/wide_dtype.h"
#include "lockstep/device/constant_on_gpus.h"

namespace lockstep::losses {
namespace {

/// Ignores nothing: LibTorch's own default would ignore -100 silently.
constexpr int64_t kNoIndex = std::numeric_limits<int64_t>::min();

void check_same_shape(const char* name, const at::Tensor& output, const at::Tensor& target) {
  LOCKSTEP_CHECK_VALUE(output.sizes() == target.sizes(), "[losses::", name,
                       "] outputs and targets must have the same shape: outputs=", output.sizes(),
                       ", targets=", target.sizes());
}

/// Losses are computed in float at least: a narrow type would round targets and weights.
at::Tensor widened(const at::Tensor& output) { return output.to(detail::wide_dtype(output.scalar_type())); }

template <class F>
Loss elementwise(const char* name, F loss) {
  return Loss([name, loss](const at::Tensor& output, const at::Tensor& target) {
    check_same_shape(name, output, target);
    const at::Tensor wide = widened(output);
    return loss(wide, target.to(wide.scalar_type()));
  });
}

using Weights = std::shared_ptr<const detail::ConstantOnGpus>;

c10::optional<at::Tensor> weights_on(const Weights& weights, const at::Tensor& like) {
  if (!weights->defined()) return c10::nullopt;
  return weights->on(like.device(), like.scalar_type());
}

/// The number of targets that count, or the sum of their weights.
at::Tensor counted_targets(const at::Tensor& targets, const CrossEntropyOptions& options, const Weights& weights) {
  const at::Tensor counted = targets.ne(options.ignore_index.value_or(kNoIndex));
  if (!weights->defined()) return counted.sum().to(at::kDouble);
  const at::Tensor classes = targets.masked_fill(counted.logical_not(), 0);
  const at::Tensor of_targets = weights->on(targets.device(), at::kDouble).index({classes});
  return (of_targets * counted).sum();
}

}  // namespace

Loss cross_entropy(const CrossEntropyOptions& options) {
  LOCKSTEP_CHECK_VALUE(
      options.label_smoothing >= 0 && options.label_smoothing <= 1,
      "[losses::cross_entropy] label_smoothing must be in [0, 1]: label_smoothing=", options.label_smoothing);
  const auto weights = std::make_shared<const detail::ConstantOnGpus>(options.class_weights);
  const auto losses_of = [options, weights](const at::Tensor& logits, const at::Tensor& target) {
    LOCKSTEP_CHECK_VALUE(at::isIntegralType(target.scalar_type(), /*includeBool=*/false),
                         "[losses::cross_entropy] targets must be class indices: dtype=", target.scalar_type());
    const at::Tensor wide = widened(logits);
    return at::cross_entropy_loss(wide, target.to(at::kLong), weights_on(weights, wide), at::Reduction::None,
                                  options.ignore_index.value_or(kNoIndex), options.label_smoothing);
  };
  if (!options.ignore_index && !options.class_weights.defined()) return {losses_of};
  return {losses_of,
          [options, weights](const Batch& batch) { return counted_targets(batch.target(), options, weights); }};
}

Loss nll() {
  return Loss([](const at::Tensor& output, const at::Tensor& target) {
    LOCKSTEP_CHECK_VALUE(at::isIntegralType(target.scalar_type(), /*includeBool=*/false),
                         "[losses::nll] targets must be class indices: dtype=", target.scalar_type());
    return at::nll_loss_nd(widened(output), target.to(at::kLong), {}, at::Reduction::None, kNoIndex);
  });
}

Loss binary_cross_entropy_with_logits() {
  return elementwise("binary_cross_entropy_with_logits", [](const at::Tensor& output, const at::Tensor& target) {
    return at::binary_cross_entropy_with_logits(output, target, {}, {}, at::Reduction::None);
  });
}

Loss mse() {
  return elementwise("mse", [](const at::Tensor& output, const at::Tensor& target) {
    return at::mse_loss(output, target, at::Reduction::None);
  });
}

Loss mae() {
  return elementwise("mae", [](const at::Tensor& output, const at::Tensor& target) {
    return at::l1_loss(output, target, at::Reduction::None);
  });
}

Loss huber(double delta) {
  LOCKSTEP_CHECK_VALUE(delta > 0, "[losses::huber] delta must be positive: delta=", delta);
  return elementwise("huber", [delta](const at::Tensor& output, const at::Tensor& target) {
    return at::huber_loss(output, target, at::Reduction::None, delta);
  });
}

}  // namespace lockstep::losses
