#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/strategy/state/scheduler.h"
#include "lockstep/train/callbacks/callback.h"

/// Callbacks for `Trainer`. Each function returns one.
///
///     Trainer trainer(strategy, model, adam, losses::cross_entropy(),
///                     {.callbacks = {callbacks::early_stopping({.monitor = "val_loss", .patience = 3}),
///                                    callbacks::best_model("best.safetensors", {.monitor = "val_loss"}),
///                                    callbacks::csv_log("log.csv")}});
namespace lockstep::callbacks {

/// What is judged at the end of epochs. An epoch without this log is passed over where the log is one of validation,
/// and is a ValueError otherwise.
struct MonitorOptions {
  std::string monitor = "val_loss";
  /// Whether larger values are better; nothing: they are for names with "acc", "auc", "precision", "recall", "r2".
  std::optional<bool> larger_is_better = std::nullopt;
  /// By how much a value must differ from the best one to be better.
  double min_delta = 0;
};

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  std::optional<bool> larger_is_better = std::nullopt;
  double min_delta = 0;
  /// The training stops after so many epochs in a row that are no better; 0 is as 1, as in Keras.
  int64_t patience = 0;
  /// Epochs before this one are not judged.
  int64_t start_epoch = 0;
};

/// Stops the training when a log stops getting better. A value that is no number is not better.
LOCKSTEP_API std::shared_ptr<Callback> early_stopping(const EarlyStoppingOptions& options = {});

/// Writes the parameters and buffers of the models to a safetensors file whenever a log is better than before
/// (`Trainer::model_state`). The file is replaced at once, so that it is whole at every moment.
LOCKSTEP_API std::shared_ptr<Callback> best_model(const std::string& path, const MonitorOptions& options = {});

struct NanOptions {
  /// Where the batches are written to: `nan_step<step>_worker<worker>.safetensors`. Empty: they are not.
  std::string folder = ".";
  /// The loss is read after each so many updates. The batches since the last read are kept, and are all written.
  int64_t every_steps = 1;
};

/// Stops the training when the loss is infinite or no number. That state is neither evaluated nor saved: the newest
/// checkpoint is one from before.
LOCKSTEP_API std::shared_ptr<Callback> terminate_on_nan(const NanOptions& options = {});

/// Multiplies the learning rates when a log stops getting better, by the rules of PyTorch's ReduceLROnPlateau, also
/// those of schedules. For the names with which larger values are better (`MonitorOptions`) `mode` is Max.
LOCKSTEP_API std::shared_ptr<Callback> reduce_on_plateau(const std::string& monitor = "val_loss",
                                                         const PlateauOptions& options = {});

/// Writes a line for each epoch: a CSV file with a header, or a JSON object for each line. A restored training removes
/// the lines of epochs that are done again. One worker writes.
LOCKSTEP_API std::shared_ptr<Callback> csv_log(const std::string& path);
LOCKSTEP_API std::shared_ptr<Callback> json_log(const std::string& path);

}  // namespace lockstep::callbacks
