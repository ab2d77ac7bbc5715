#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/api.h"
#include "lockstep/train/metrics/metric.h"

/// The usual metrics, defined as in Keras 3.
///
/// Each element counts alike, with the weight of its row: an output of shape [rows, 5] has five elements in each row.
/// (Keras takes the mean of each row first; this only differs where batches have rows of different lengths.) A row of
/// weight 0 does not count, whatever its values. Sums are double: counts are exact up to 2^53. An output and a target
/// whose shapes or dtypes do not fit are a ValueError; nothing is broadcast.
///
/// Without examples the result is NaN (Keras: 0), but 0 for precision and recall.
namespace lockstep::metrics {

using MetricPointer = std::shared_ptr<const Metric>;

/// The mean of the outputs, of any shape; the target is not used. A scalar output counts as one row.
LOCKSTEP_API MetricPointer mean(const std::string& name);

struct BinaryAccuracyOptions {
  /// An output above it is a 1.
  double threshold = 0.5;
  std::string name = "binary_accuracy";
};
/// How many outputs are on the side of the threshold where the target is, 0 or 1. Both have the same shape.
LOCKSTEP_API MetricPointer binary_accuracy(const BinaryAccuracyOptions& options = {});

/// How often the largest of the outputs [..., classes] is where the target [..., classes], one-hot, has its largest.
LOCKSTEP_API MetricPointer categorical_accuracy(const std::string& name = "categorical_accuracy");

/// The same with a class index as target, of an integer dtype: [...] or [..., 1]. One that is not a class is never
/// right.
LOCKSTEP_API MetricPointer sparse_categorical_accuracy(const std::string& name = "sparse_categorical_accuracy");

/// How often fewer than `k` of the outputs [..., classes] are larger than that of the target, a class index or one-hot.
/// A class with an output of NaN, and an index that is not a class, is never right.
LOCKSTEP_API MetricPointer top_k_accuracy(int64_t k, const std::string& name = "top_k_accuracy");

struct PositiveOptions {
  /// An output above it is positive.
  double threshold = 0.5;
  /// Set: only this class of outputs and targets [..., classes] counts.
  std::optional<int64_t> class_id = std::nullopt;
  /// Empty: that of the function.
  std::string name = "";
};
/// Which part of the positive outputs is right; 0 if there are none. Output and target have the same shape. The result
/// is a ValueError if a target was neither 0 nor 1.
LOCKSTEP_API MetricPointer precision(const PositiveOptions& options = {});
/// Which part of the positive targets was found; 0 if there are none. Otherwise as `precision`.
LOCKSTEP_API MetricPointer recall(const PositiveOptions& options = {});

/// What the area is measured under: true over false positive rate, or precision over recall.
enum class AucCurve { ROC, PR };
struct AucOptions {
  AucCurve curve = AucCurve::ROC;
  /// The curve has as many points: thresholds at equal distances from 0 to 1, as in Keras. At least 2.
  int64_t num_thresholds = 200;
  /// Whether outputs are logits, of which the sigmoid is taken.
  bool from_logits = false;
  std::string name = "auc";
};
/// The area under a curve, by Keras's interpolation. Output and target have the same shape. The result is NaN where
/// the curve is not defined: without positive targets, and for ROC without negative ones (Keras: 0). It is a ValueError
/// if an output was not in [0, 1] or a target neither 0 nor 1.
LOCKSTEP_API MetricPointer auc(const AucOptions& options = {});

/// How often each class was taken for each: a row for each target, a column for each output, of dtype double. Outputs
/// are scores [..., num_classes] or class indices, targets are class indices. The result is a ValueError if an index
/// was not a class.
LOCKSTEP_API MetricPointer confusion_matrix(int64_t num_classes, const std::string& name = "confusion_matrix");

/// Means of the squared and of the absolute differences. Output and target have the same shape.
LOCKSTEP_API MetricPointer mse(const std::string& name = "mse");
LOCKSTEP_API MetricPointer mae(const std::string& name = "mae");

struct R2Options {
  /// Columns of outputs and targets [rows, num_outputs]; with one column [rows] is allowed, too.
  int64_t num_outputs = 1;
  std::string name = "r2";
};
/// The part of the variance of the targets that the outputs explain; the mean over the columns. NaN if the targets of a
/// column are all equal. The variance is computed from differences to the mean, so that it keeps its digits.
LOCKSTEP_API MetricPointer r2(const R2Options& options = {});

struct PerplexityOptions {
  /// Targets with this value do not count.
  int64_t ignore_index = -100;
  std::string name = "perplexity";
};
/// The exponential of the mean cross entropy. Outputs are logits [..., classes], targets are class indices [...]. An
/// index that is not a class is an error for any weight, as in `torch::nn::functional::cross_entropy`.
LOCKSTEP_API MetricPointer perplexity(const PerplexityOptions& options = {});

}  // namespace lockstep::metrics
