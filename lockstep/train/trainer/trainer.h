#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/losses/loss.h"
#include "lockstep/train/trainer/batch.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/trained_objects.h"
#include "lockstep/train/trainer/trainer_input.h"
#include "lockstep/train/trainer/trainer_options.h"

namespace lockstep {

namespace detail {
struct TrainerSteps;
}

/// Trains, evaluates and applies a model under any strategy.
///
///     MirroredStrategy strategy;
///     auto scope = strategy.scope();
///     auto model = module<Net>();
///     auto adam = optimizer<torch::optim::Adam>(model, 1e-3);
///     Trainer trainer(strategy, model, adam, losses::cross_entropy(),
///                     {.metrics = {metrics::sparse_categorical_accuracy()}});
///     trainer.fit(train.shuffle(10'000).batch(256), {.epochs = 10, .validation = test.batch(256)});
///     at::Tensor logits = trainer.predict(images.batch(256));
///
/// Numbers are those of one device with the whole batch, for every number of replicas and workers and every remainder.
/// They are accumulated on the devices and read when an epoch ends or somebody asks.
///
/// A step of another kind is an override of `train_step`. With several workers all make the same calls. One thread at a
/// time may use it. It refers to its model and optimizers, which are handles.
class LOCKSTEP_API Trainer {
 public:
  /// `model` is a Module, or a `std::tie` of several, of which the first is called by `forward`; `optimizer` is an
  /// Optimizer, or a `std::tie` of several, which differentiate one loss. All are of this strategy.
  template <class Model, class Optimizers>
  Trainer(const Strategy& strategy, const Model& model, const Optimizers& optimizer, Loss loss,
          TrainerOptions options = {})
      : Trainer(strategy, detail::trained_modules(model), detail::trained_optimizers(optimizer), std::move(loss),
                std::move(options)) {}
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains. Ctrl-C and SIGTERM end it after a step, with a checkpoint if there is a folder; a second signal ends the
  /// process at once. After an error of a step the parameters are those after the last step that all replicas finished.
  History fit(const TrainerInput& data, const FitOptions& options = {});

  /// Returns loss and metrics over all examples, in evaluation mode.
  Logs evaluate(const TrainerInput& data);

  /// Returns the outputs for all examples, on the CPU of every worker: the first output, or all of them. With one
  /// worker they are in the order of the dataset. Workers read different rows: there they are in the order of the
  /// batches and, in each of them, of the replicas.
  at::Tensor predict(const TrainerInput& data);
  /// As `predict`, with all outputs of the model.
  Outputs predict_all(const TrainerInput& data);

  /// Ends `fit` after the present step; called by callbacks, on all workers. With `save` false the state is neither
  /// evaluated nor saved: checkpoints stay as they are.
  void stop(std::string reason, bool save = true);

  /// The results of the running epoch: "loss" and metrics that are one number. Waits for the devices; all workers call
  /// it, outside of `run`.
  Logs results() const;
  /// The result of a metric, which may be a tensor. ValueError for an unknown name.
  at::Tensor result(const std::string& metric) const;
  /// That of the last evaluation.
  at::Tensor evaluation_result(const std::string& metric) const;
  /// The loss of the last update. Waits for the devices; all workers call it.
  double step_loss() const;
  /// What this worker's replicas got for the last update: `[micro-batch][replica]`.
  const std::vector<std::vector<Batch>>& last_batches() const;

  /// The strategy that it was made with.
  const Strategy& strategy() const;
  /// Whether this worker prints and writes files.
  bool is_chief() const;
  /// The number of elements of all parameters of the models.
  int64_t num_parameters() const;
  /// Numbers of updates and of epochs so far, those before a restore included.
  int64_t step() const;
  int64_t epoch() const;
  /// All epochs so far.
  const History& history() const;
  /// The learning rate of an optimizer in the last update.
  double lr(size_t optimizer = 0) const;
  /// Multiplies the rates of all optimizers, those of schedules included, from the next update on. Rates that are set
  /// on an optimizer itself are overwritten then.
  void multiply_lr(double factor);
  /// What the rates are multiplied by now.
  double lr_factor() const;
  /// How much the loss is scaled, and how many updates were left out because of it; 1 and 0 without a loss scaler.
  double loss_scale() const;
  int64_t num_skipped() const;

  /// The parameters and buffers of the models, for files: "weight" of a single model, "0.weight" of several. With
  /// `ema_decay` the averages. All workers call it, and all read its tensors.
  State model_state() const;

  /// What a checkpoint of `fit` consists of, except for the dataset.
  std::vector<Checkpoint::Entry> checkpoint_entries();

 protected:
  Trainer(const Strategy& strategy, detail::TrainedModules models, detail::TrainedOptimizers optimizers, Loss loss,
          TrainerOptions options);

  /// Inside a replica: trains with its part of a batch. Without an override:
  ///
  ///     const Outputs outputs = forward(batch);
  ///     const LossShare share = loss(outputs, batch);
  ///     minimize(share);
  ///     update_metrics(outputs, batch, share);
  virtual void train_step(const Batch& batch);
  /// Inside a replica: evaluates its part of a batch. Without an override as above, without `minimize`.
  virtual void test_step(const Batch& batch);
  /// Inside a replica: returns the outputs for its part of a batch.
  virtual Outputs predict_step(const Batch& batch);

  /// One replica's share of a loss: over all replicas and micro-batches the shares are summed.
  struct LossShare {
    at::Tensor value;
    /// The sum of its losses, and their number: what the mean of the epoch is made of.
    at::Tensor sum = {};
    at::Tensor count = {};
  };

  /// Calls the first model. Some functions of LibTorch refuse tensors without rows. Where a replica has none and the
  /// model fails for them, and has no batch normalization, it is called with a row of another replica, of which nothing
  /// counts: the outputs have no rows, and the gradients are zero.
  Outputs forward(const Batch& batch);
  LossShare loss(const Outputs& outputs, const Batch& batch);
  /// Differentiates a share and updates, or adds to the gradients where more micro-batches follow.
  void minimize(const LossShare& share);
  void update_metrics(const Outputs& outputs, const Batch& batch, const LossShare& share);

 private:
  friend class FitLoop;
  friend struct detail::TrainerSteps;
  struct Impl;

  /// Evaluates; nothing where `ends` has returned true after a batch.
  std::optional<Logs> evaluate_unless(const TrainerInput& data, const std::function<bool()>& ends);

  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
