#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

/// Internal: the parts of batch normalization on the CPU, for float and double. Sums are added in double, in an order
/// that depends on the sizes alone.
namespace lockstep::nn::detail {

/// Whether the kernels take a tensor: [rows, channels, ...] on the CPU, without gaps, in one of LibTorch's layouts.
bool suits_kernels(const at::Tensor& input);

/// Returns [2 * channels + 1] doubles: the mean of each channel, its sum of squared distances from the mean, and the
/// number of values of a channel. Means of no values are 0.
at::Tensor channel_statistics(const at::Tensor& input);

/// Joins the statistics of replicas, one row for each, by Chan's formula in replica order.
at::Tensor joined_statistics(const at::Tensor& of_replicas);

/// Returns (input - mean) * scale + shift. The numbers of channels are doubles.
at::Tensor normalized(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& scale,
                      const at::Tensor& shift);

/// Returns [2 * channels] doubles: the sums of the gradient, and of its product with (input - mean). The gradient has
/// the input's layout.
at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean);

/// Returns (gradient - offset - (input - mean) * slope) * scale.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& offset, const at::Tensor& slope, const at::Tensor& scale);

}  // namespace lockstep::nn::detail
