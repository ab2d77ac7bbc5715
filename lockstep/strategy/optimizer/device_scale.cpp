#include "lockstep/strategy/optimizer/device_scale.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

/// Scales are factors of float32 numbers.
constexpr double kSmallestScale = std::numeric_limits<float>::min();
constexpr double kLargestScale = std::numeric_limits<float>::max();
constexpr uint64_t kCallsPerLook = 64;

/// Divides numbers of one device and dtype, and sets `found_inf` where one is not finite.
void unscale_alike(std::vector<at::Tensor>& numbers, const at::Tensor& inverse, at::Tensor& found_inf) {
  // LibTorch's function computes in float32.
  if (numbers[0].scalar_type() == at::kFloat) {
    return at::_amp_foreach_non_finite_check_and_unscale_(numbers, found_inf, inverse.to(at::kFloat));
  }
  for (at::Tensor& values : numbers) {
    found_inf = at::maximum(found_inf, values.isfinite().all().logical_not().to(at::kFloat));
    values.copy_(values.to(at::promote_types(values.scalar_type(), at::kFloat)) * inverse);
  }
}

}  // namespace

bool is_scale(double scale) { return scale >= kSmallestScale && scale <= kLargestScale; }

void throw_no_scale(const ScaleNumbers& numbers) {
  LOCKSTEP_THROW(c10::ValueError, "[loss scaler] gradients are not finite at any scale: scale=", numbers.scale,
                 ", updates skipped=", numbers.num_skipped, "; the loss or the model computes infinities or NaN");
}

at::Tensor StepScale::like(const at::Tensor& loss) const {
  const at::TensorOptions options = loss.options().requires_grad(false);
  // Backward may leave it in a gradient, which is then written.
  if (on_device.defined()) return at::empty_like(loss, options).copy_(on_device.expand_as(loss));
  return at::full_like(loss, on_host, options);
}

at::Tensor StepScale::times(const at::Tensor& number) const {
  return on_device.defined() ? number * on_device : number * on_host;
}

DeviceScale::DeviceScale(c10::Device device)
    : scale_(at::zeros({}, at::device(device).dtype(at::kFloat))),
      num_good_(at::zeros({}, at::device(device).dtype(at::kInt))),
      num_skipped_(at::zeros({}, at::device(device).dtype(at::kDouble))) {}

void DeviceScale::set(const ScaleNumbers& numbers, const LossScalerOptions& options) {
  const at::NoGradGuard no_grad;
  scale_.fill_(numbers.scale);
  // LibTorch's function compares for equality.
  num_good_.fill_(std::min(numbers.num_good, options.growth_interval - 1));
  num_skipped_.fill_(static_cast<double>(numbers.num_skipped));
  arrives_.reset();
}

ScaleNumbers DeviceScale::read() const {
  const at::Tensor numbers = at::stack({scale_.to(at::kDouble), num_good_.to(at::kDouble), num_skipped_}).cpu();
  const auto* const values = numbers.data_ptr<double>();
  const ScaleNumbers read{values[0], static_cast<int64_t>(values[1]), static_cast<int64_t>(values[2])};
  if (!is_scale(read.scale)) throw_no_scale(read);
  return read;
}

void DeviceScale::follow(const at::Tensor& found_inf, const LossScalerOptions& options) {
  const at::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, num_good_, found_inf, options.growth, options.backoff, options.growth_interval);
  num_skipped_.add_(found_inf);
}

void DeviceScale::look(const std::optional<c10::Stream>& stream) {
  if (num_looks_++ % kCallsPerLook != 0 || !scale_.is_cuda() || !stream) return;
  if (arrives_ && !arrives_->query()) return;
  if (arrives_ && !is_scale(*seen_.data_ptr<float>())) read();
  if (!seen_.defined()) seen_ = at::empty({}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
  const c10::StreamGuard guard(*stream);
  seen_.copy_(scale_, /*non_blocking=*/true);
  arrives_.emplace(*stream);
}

at::Tensor unscale(std::vector<at::Tensor>& numbers, const at::Tensor& scale) {
  const at::NoGradGuard no_grad;
  at::Tensor found_inf = at::zeros({}, scale.options());
  const at::Tensor inverse = scale.to(at::kDouble).reciprocal();
  std::vector<at::Tensor> left;
  for (const at::Tensor& values : numbers) {
    LOCKSTEP_CHECK_VALUE(values.scalar_type() != at::kHalf,
                         "[loss scaler] gradients in float16 vanish when the scale is taken off; keep parameters in ",
                         "float32 and compute in float16 (PolicyScope)");
    if (values.numel() > 0) left.push_back(values.is_complex() ? at::view_as_real(values) : values);
  }
  while (!left.empty()) {
    const auto is_other = [&](const at::Tensor& values) {
      return values.device() != left[0].device() || values.scalar_type() != left[0].scalar_type();
    };
    const auto others =
        std::stable_partition(left.begin() + 1, left.end(), [&](const auto& v) { return !is_other(v); });
    std::vector<at::Tensor> alike(left.begin(), others);
    left.erase(left.begin(), others);
    const c10::Device device = alike[0].device();
    at::Tensor found_here = device == scale.device() ? found_inf : at::zeros({}, found_inf.options().device(device));
    unscale_alike(alike, inverse.to(device, /*non_blocking=*/true), found_here);
    found_inf = device == scale.device() ? found_here : at::maximum(found_inf, found_here.to(scale.device()));
  }
  return found_inf;
}

}  // namespace lockstep::detail
