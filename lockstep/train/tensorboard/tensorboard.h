#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/tensorboard/hyper_parameters.h"

namespace lockstep::callbacks {

struct TensorBoardOptions {
  /// Loss and learning rate are written after each so many updates; 0: at the ends of epochs alone. Reading the loss
  /// waits for the devices.
  int64_t every_steps = 0;
  /// Histograms of all parameters and buffers are written after each so many epochs; 0: never.
  int64_t histograms_every = 0;
  /// What the HParams page shows, beside the last values of all scalars. Empty: the training is not on that page.
  tensorboard::HyperParameters hyper_parameters = {};
};

/// Writes event files for TensorBoard: "epoch/NAME" for each log, "step/loss" and "step/learning_rate" after steps.
/// Steps are numbers of updates. Logs of validation are in the folder `validation` below, under the same tags, so that
/// TensorBoard draws them over those of the training. A restored training goes on: what was written of later steps is
/// removed. Older files of a training that begins anew are moved to a folder `before` (`before-1`, ...) below. All is
/// flushed at the ends of epochs. One worker writes; all workers have the callback.
LOCKSTEP_API std::shared_ptr<Callback> tensorboard(const std::string& folder, const TensorBoardOptions& options = {});

}  // namespace lockstep::callbacks
