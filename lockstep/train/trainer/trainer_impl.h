#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/constant_on_gpus.h"
#include "lockstep/strategy/optimizer/loss_scaler.h"
#include "lockstep/strategy/replay/pure.h"
#include "lockstep/train/trainer/metric_set.h"
#include "lockstep/train/trainer/moving_average.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep {

namespace detail {

/// Internal: what a replica knows of the update that it works on.
struct StepContext {
  const MetricSet* metrics = nullptr;
  size_t micro = 0;
  size_t num_micro = 1;
  /// What losses are divided by, over all replicas and micro-batches: rows, or what the loss counts. A number where it
  /// is known on the host.
  double number = 0;
  at::Tensor total = {};
  /// Whether losses are divided by rows, times the losses of each row.
  bool counts_rows = false;
  /// The losses of each row of the micro-batches so far; 0: none had rows.
  int64_t per_row = 0;
  /// The sum of the replica's shares.
  at::Tensor loss = {};

  bool is_last() const { return micro + 1 == num_micro; }
};

/// While it lives, the calling replica works on an update.
class StepScope {
 public:
  explicit StepScope(StepContext& context);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  /// What the calling replica works on. ContextError where there is nothing.
  static StepContext& here(const char* operation);
};

/// How far a training is.
struct TrainerProgress {
  int64_t step = 0;
  int64_t epoch = 0;
  /// The epoch with which `fit` began.
  int64_t first_epoch = 0;
  /// The updates of the running epoch.
  int64_t step_in_epoch = 0;
  /// Whether the running epoch has had all batches of the dataset.
  bool has_all_batches = false;
  double lr_factor = 1;
  History history = {};

  State state() const;
  void load_state(const State& state);
};

/// What callbacks of the library need beside the methods of Trainer.
struct TrainerSteps {
  /// The updates of the running epoch.
  static int64_t in_epoch(const Trainer& trainer);
  /// Asks all workers to end an interval of steps. They learn of it together, after the next step: then
  /// `ends_interval` is true on all of them, for one step. Where there is one worker, too.
  static void ask_interval_end(Trainer& trainer);
  static bool ends_interval(const Trainer& trainer);
};

}  // namespace detail

struct Trainer::Impl {
  Impl(Trainer& self, const Strategy& strategy_, detail::TrainedModules models_, detail::TrainedOptimizers optimizers_,
       Loss loss_, TrainerOptions options_);

  using MicroBatches = std::vector<Batch>;
  /// Takes the replica's micro-batches and the rows of all replicas, or -1 where they are not known on the host.
  using TrainFunction = std::function<at::Tensor(const MicroBatches&, int64_t)>;
  using TestFunction = std::function<void(const Batch&)>;
  using PredictFunction = std::function<Outputs(const Batch&)>;

  /// Outside of `run`: does one update with `[micro-batch][replica]`.
  void train(const std::vector<std::vector<Batch>>& micro);
  void test(const std::vector<Batch>& batches);
  std::vector<PerReplica<at::Tensor>> predict(const std::vector<Batch>& batches);
  /// Inside a replica.
  at::Tensor train_replica(const MicroBatches& micro, int64_t rows);
  void find_total(const MicroBatches& micro, int64_t rows, detail::StepContext& context) const;
  /// Inside a replica: a number of all replicas, at least 1.
  at::Tensor total_of_replicas(at::Tensor total) const;
  Outputs forward(const Batch& batch);
  std::optional<at::Tensor> weights_of(const Batch& batch) const;
  MinimizeOptions minimize_options() const;
  /// Sets the learning rates of the next update.
  void set_rates();

  Trainer& trainer;
  Strategy strategy;
  detail::TrainedModules models;
  detail::TrainedOptimizers optimizers;
  std::vector<detail::OptimizerCore*> cores;
  Loss loss;
  TrainerOptions options;
  const detail::ConstantOnGpus class_weights;
  std::unique_ptr<LossScaler> scaler;
  std::unique_ptr<detail::MovingAverage> average;
  detail::MetricSet train_metrics;
  detail::MetricSet test_metrics;
  detail::TrainerProgress progress;
  /// The rates of all parameter groups of each optimizer at the beginning.
  std::vector<std::vector<double>> first_rates;
  std::optional<std::string> stop_reason;
  /// Whether the state at the stop is worth saving.
  bool saves_stop = true;
  /// Whether rows of other replicas may pass the model, and whether it has failed without rows.
  const bool may_use_spare_rows;
  std::atomic<bool> needs_spare_rows{false};
  std::vector<std::vector<Batch>> last_batches;
  std::optional<PerReplica<at::Tensor>> last_loss;
  /// See `TrainerSteps`.
  bool wants_interval_end = false;
  bool ends_interval = false;
  TrainFunction train_function;
  TestFunction test_function;
  PredictFunction predict_function;
  PureStep<TrainFunction> pure_train;
  PureStep<TestFunction> pure_test;
  PureStep<PredictFunction> pure_predict;
};

}  // namespace lockstep
