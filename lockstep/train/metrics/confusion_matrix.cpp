#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/train/metrics/metric_inputs.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

/// The state: the matrix, and the number of indices that are not classes.
class ConfusionMatrix final : public Metric {
 public:
  ConfusionMatrix(int64_t num_classes, std::string name) : Metric(std::move(name)), num_classes_(num_classes) {
    LOCKSTEP_CHECK_VALUE(num_classes >= 1, "[confusion_matrix] there must be a class: num_classes=", num_classes);
  }

  MetricState initial() const override {
    return {at::zeros({num_classes_, num_classes_}, at::kDouble), at::zeros({}, at::kLong)};
  }

  MetricState update(const MetricState& state, const MetricBatch& batch) const override {
    check(batch);
    check_weights(*this, batch);
    const bool has_scores = batch.output.is_floating_point();
    const at::Tensor outputs = has_scores ? not_narrow(batch.output).argmax(-1) : batch.output.to(at::kLong);
    const at::Tensor targets = (has_scores ? class_indices(batch) : batch.target).to(at::kLong);
    const at::Tensor is_cell = is_class(outputs).logical_and(is_class(targets));
    const at::Tensor cell = targets.mul(num_classes_).add(outputs).mul(is_cell);
    const at::Tensor weights = element_weights_or_ones(batch.weights, cell).mul(is_cell);
    const at::Tensor matrix = state[0].reshape({-1}).index_add(0, cell.reshape({-1}), weights.reshape({-1}));
    return {matrix.view({num_classes_, num_classes_}), state[1] + count_weighted(is_cell.logical_not(), batch.weights)};
  }

  at::Tensor result(const MetricState& state) const override {
    LOCKSTEP_CHECK_VALUE(state[1].item<int64_t>() == 0,
                         "[confusion_matrix] class indices must be in [0, num_classes): metric=", name(),
                         ", num_classes=", num_classes_, ", others=", state[1].item<int64_t>());
    return state[0];
  }

 private:
  void check(const MetricBatch& batch) const {
    if (batch.output.is_floating_point()) {
      check_scores(*this, batch);
      LOCKSTEP_CHECK_VALUE(batch.output.size(-1) == num_classes_,
                           "[confusion_matrix] there must be a score for each class: metric=", name(),
                           ", num_classes=", num_classes_, ", output=", batch.output.sizes());
      return check_class_indices(*this, batch);
    }
    check_same_shapes(*this, batch);
    LOCKSTEP_CHECK_VALUE(!batch.target.is_floating_point(),
                         "[confusion_matrix] class indices must be integers: metric=", name(),
                         ", target=", batch.target.sizes(), " ", dtype_name(batch.target.scalar_type()));
  }

  at::Tensor is_class(const at::Tensor& indices) const { return indices.ge(0).logical_and(indices.lt(num_classes_)); }

  int64_t num_classes_;
};

}  // namespace

MetricPointer confusion_matrix(int64_t num_classes, const std::string& name) {
  return std::make_shared<ConfusionMatrix>(num_classes, name);
}

}  // namespace lockstep::metrics
