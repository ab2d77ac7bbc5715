#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/train/trainer/batch.h"

namespace lockstep {

/// What a loss function returns.
enum class LossReduction {
  /// A loss for each example, or several for each, such as one for each token: the loss is the mean of all of them.
  None,
  /// The mean over the examples of this replica's batch.
  Mean,
  /// Their sum; it is divided by the number of examples.
  Sum,
};

/// A loss and how it is divided, so that the sum over replicas is the loss of one device with the whole batch.
///
///     Trainer trainer(strategy, model, adam, losses::cross_entropy());
///     Trainer other(strategy, model, adam, [](torch::Tensor output, torch::Tensor target) {
///       return torch::nll_loss(output, target, {}, torch::Reduction::None);
///     });
///     Trainer pairs(strategy, model, adam, Loss(mean_of_pairs, LossReduction::Mean));
///
/// A cheap value.
class LOCKSTEP_API Loss {
 public:
  using Function = std::function<at::Tensor(const Outputs&, const Batch&)>;
  using Count = std::function<at::Tensor(const Batch&)>;

  /// `fn(output, target)` takes the only output and the only target; `fn(outputs, batch)` takes all.
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, Loss> &&
             (std::is_invocable_r_v<at::Tensor, F&, const at::Tensor&, const at::Tensor&> ||
              std::is_invocable_r_v<at::Tensor, F&, const Outputs&, const Batch&>))
  Loss(F fn, LossReduction reduction = LossReduction::None)  // NOLINT: a function is a loss
      : function_(as_function(std::move(fn))), reduction_(reduction) {}

  /// A sum and what it is divided by: `sum` returns the losses that are summed, or their sum, and `count(batch)` their
  /// number as a scalar, such as that of the tokens that are not padding. The count depends on the batch alone, so that
  /// it is known before backward.
  template <class F>
  Loss(F sum, Count count) : function_(as_function(std::move(sum))), count_(std::move(count)) {}

  /// One replica's sum. `per_row` is the number of losses of each row; nothing where `count` counts.
  struct Term {
    at::Tensor sum;
    int64_t elements = 0;
    std::optional<int64_t> per_row = std::nullopt;
  };
  /// Inside a replica: returns the weighted sum of the losses of a batch. ValueError where the function returns
  /// something else than was said.
  Term sum(const Outputs& outputs, const Batch& batch, const std::optional<at::Tensor>& weights) const;

  bool counts() const { return static_cast<bool>(count_); }
  at::Tensor count(const Batch& batch) const { return count_(batch); }

 private:
  template <class F>
  static Function as_function(F fn) {
    if constexpr (std::is_invocable_r_v<at::Tensor, F&, const Outputs&, const Batch&>) {
      return fn;
    } else {
      return [fn = std::move(fn)](const Outputs& outputs, const Batch& batch) mutable -> at::Tensor {
        check_single(outputs, batch);
        return fn(outputs[0], batch.targets[0]);
      };
    }
  }
  static void check_single(const Outputs& outputs, const Batch& batch);

  Function function_;
  LossReduction reduction_ = LossReduction::None;
  Count count_;
};

}  // namespace lockstep
