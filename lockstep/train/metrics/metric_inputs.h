#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "lockstep/train/metrics/metric.h"

/// Internal: what metrics check of batches, and the dtypes that they compute in.
namespace lockstep::metrics {

/// ValueErrors that name the metric and the shapes.
void check_same_shapes(const Metric& metric, const MetricBatch& batch);
/// Output [..., classes], floating point.
void check_scores(const Metric& metric, const MetricBatch& batch);
/// Target [...] or [..., 1] of integers, for outputs [..., classes].
void check_class_indices(const Metric& metric, const MetricBatch& batch);
/// One weight for each row, unless there are none.
void check_weights(const Metric& metric, const MetricBatch& batch);

/// Half precision as single, in which all of LibTorch's CPU kernels compute.
at::Tensor not_narrow(const at::Tensor& tensor);
/// The target with the dimensions of the output without its last one.
at::Tensor class_indices(const MetricBatch& batch);
/// The weights of the rows as double, for each of the elements of `values`; its first dimension has the rows.
at::Tensor element_weights(const at::Tensor& weights, const at::Tensor& values);
/// Weights, or 1 where there are none, of dtype double.
at::Tensor element_weights_or_ones(const at::Tensor& weights, const at::Tensor& values);
/// Counts elements; those of rows of weight 0 do not count.
at::Tensor count_weighted(const at::Tensor& elements, const at::Tensor& weights);
/// Values times weights; 0 where the weight is 0.
at::Tensor weighted_values(const at::Tensor& values, const at::Tensor& weights);

}  // namespace lockstep::metrics
