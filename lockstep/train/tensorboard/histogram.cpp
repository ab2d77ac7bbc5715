#include "lockstep/train/tensorboard/histogram.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::tensorboard {

at::Tensor histogram_buckets(const at::Tensor& values, int64_t buckets) {
  const at::NoGradGuard no_grad;
  at::Tensor data = values.detach().to(at::kCPU).to(at::kDouble).reshape({-1});
  data = data.masked_select(data.isfinite());
  at::Tensor result = at::zeros({buckets, 3}, data.options());
  if (data.numel() == 0) return result;
  const double least = data.min().item<double>();
  const double largest = data.max().item<double>();
  const double width = largest / static_cast<double>(buckets) - least / static_cast<double>(buckets);
  if (!(width > 0) || !std::isfinite(largest - least)) {
    result.narrow(1, 0, 2).fill_(least);
    result[buckets - 1][2].fill_(static_cast<double>(data.numel()));
    return result;
  }
  const at::Tensor places =
      ((data - least) / width).floor_().clamp_max_(static_cast<double>(buckets - 1)).to(at::kLong);
  const at::Tensor edges = at::linspace(least, largest, buckets + 1, data.options());
  result.select(1, 0).copy_(edges.narrow(0, 0, buckets));
  result.select(1, 1).copy_(edges.narrow(0, 1, buckets));
  result.select(1, 2).copy_(at::bincount(places, {}, buckets));
  return result;
}

}  // namespace lockstep::tensorboard
