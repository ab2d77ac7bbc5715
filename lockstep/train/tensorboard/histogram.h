#pragma once

#include <ATen/core/Tensor.h>

/// Internal: what TensorBoard's histograms show.
namespace lockstep::tensorboard {

/// Returns `[buckets, 3]` of float64: left edge, right edge and number of values of buckets of one width. The last
/// bucket contains its right edge. Without values all numbers are 0; of equal values all edges are this value, and the
/// last bucket has them. Values that are not finite are left out.
at::Tensor histogram_buckets(const at::Tensor& values, int64_t buckets);

}  // namespace lockstep::tensorboard
