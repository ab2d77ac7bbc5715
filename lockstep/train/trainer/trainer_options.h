#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/policy.h"
#include "lockstep/strategy/optimizer/loss_scaler.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/checkpoint_manager.h"
#include "lockstep/train/metrics/metric.h"
#include "lockstep/train/schedule.h"
#include "lockstep/train/trainer/trainer_input.h"

namespace lockstep {

/// A metric and what it looks at.
struct TrackedMetric {
  TrackedMetric(std::shared_ptr<const Metric> what, int64_t of_output = 0)  // NOLINT: a metric of the first output
      : metric(std::move(what)), output(of_output) {}
  template <class M>
    requires std::derived_from<M, Metric> TrackedMetric(std::shared_ptr<M> what,
                                                        int64_t of_output = 0)  // NOLINT: a metric of the first output
        : metric(std::move(what)), output(of_output) {}

    std::shared_ptr<const Metric> metric;
    /// The index of the output, and of the target.
    int64_t output = 0;
};

struct TrainerOptions {
  /// Metrics over all examples; every example counts once.
  std::vector<TrackedMetric> metrics = {};
  /// Metrics in which examples count by their weights.
  std::vector<TrackedMetric> weighted_metrics = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  /// A weight for each class, copied when the Trainer is made: the weight of an example is multiplied by that of its
  /// target. The loss is divided by the number of examples, whatever their weights.
  at::Tensor class_weights = {};
  /// Called in each replica: a loss of the parameters, which is counted once. `scale_regularization_loss` is applied.
  std::function<at::Tensor()> regularization = {};
  /// The learning rates of the optimizers, as functions of the number of updates; one for all, or one for each. Empty:
  /// the rates of the optimizers.
  std::vector<Schedule> schedules = {};
  /// So many batches make one update, with the gradients of one large batch. The last update of an epoch may have
  /// fewer.
  int64_t accumulate = 1;
  /// See `MinimizeOptions`.
  std::optional<double> clip_norm = std::nullopt;
  std::optional<double> clip_value = std::nullopt;
  /// The precision of the computation. For float16 the loss is scaled.
  Policy policy = {};
  LossScalerOptions loss_scaler = {};
  /// Keeps a moving average of the parameters: average = decay * average + (1 - decay) * parameter after each update.
  /// `evaluate` and `predict` use it.
  std::optional<double> ema_decay = std::nullopt;
  /// Whether steps are pure (`Strategy::pure`): a strategy that compiles, and replicas on a GPU, repeat them without
  /// calling `train_step`. Set it to false where an override of it prints, counts, or branches on values.
  bool pure = true;
};

struct FitOptions {
  /// The number of epochs. Those that a restored checkpoint has done of them are not done again.
  int64_t epochs = 1;
  /// The number of updates of each epoch. The dataset goes on in the next epoch, and begins anew at its end. Nothing:
  /// an epoch is one pass over the dataset.
  std::optional<int64_t> steps_per_epoch = std::nullopt;
  /// Evaluated at the end of epochs, under names with "val_".
  std::optional<TrainerInput> validation = std::nullopt;
  /// After each so many epochs, and after the last one.
  int64_t validation_every = 1;
  /// The folder of checkpoints. The training continues from the newest one. It saves when `checkpoint` says so by steps
  /// or time, else at the end of each epoch, and at the end. A training that continues has the same metrics, callbacks
  /// and options with state as the saved one; others are an error. Empty: nothing is saved.
  std::string checkpoint_folder = {};
  CheckpointOptions checkpoint = {};
  /// Whether one worker shows a bar on a terminal (`progress::Display`), and prints a line for each epoch on standard
  /// error.
  bool verbose = true;
};

}  // namespace lockstep
