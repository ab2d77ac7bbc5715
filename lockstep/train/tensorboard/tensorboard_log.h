#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/state/state.h"
#include "lockstep/train/tensorboard/hyper_parameters.h"
#include "lockstep/train/tensorboard/summary_writer.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/trainer.h"

/// Internal: the event files of a training, for the worker that writes them.
namespace lockstep::tensorboard {

/// Nothing for an optimizer without learning rates.
std::optional<double> learning_rate_of(const Trainer& trainer);

/// Logs of the training go to a file of the folder, those of validation to one of `validation` below it, under the same
/// tags, so that TensorBoard draws them over each other. Steps are numbers of updates.
class TensorBoardLog {
 public:
  /// `step`: the updates that were done before, which the files go on from. What older files have of later steps is
  /// removed. Where it is 0, older files are moved to a folder `before`, or `before-1` and so on.
  TensorBoardLog(std::string folder, int64_t step);

  void hyper_parameters(const HyperParameters& parameters);
  /// "step/loss", and "step/learning_rate" where there is one.
  void add_step(int64_t step, double loss, std::optional<double> rate);
  void add_step_scalar(const std::string& tag, int64_t step, double value) { training_.scalar(tag, value, step); }
  /// "epoch/NAME"; logs with "val_" are those of validation. Flushes.
  void add_epoch(int64_t step, const Logs& logs, std::optional<double> rate);
  /// "parameters/NAME" for each floating point tensor.
  void add_histograms(int64_t step, const State& values);
  void end(SessionStatus status);

 private:
  void make_validation();

  std::string folder_;
  int64_t first_step_;
  bool has_parameters_ = false;
  SummaryWriter training_;
  /// Made with the first log of validation, or at once where older files have some.
  std::optional<SummaryWriter> validation_;
};

}  // namespace lockstep::tensorboard
