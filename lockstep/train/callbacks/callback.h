#pragma once

#include <cstdint>
#include <string>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/train/trainer/history.h"

namespace lockstep {

class Trainer;

/// What a program adds to a training: methods that the Trainer calls at fixed points. Derive from it.
///
/// All methods are called outside of `run`, on all workers, at the same moments and with the same values, so they may
/// call everything that is collective. Where files are written, one worker does it (`Trainer::is_chief`). Results of
/// the running epoch are read with `Trainer::results`; a read waits for the devices, so a callback should not read at
/// every step.
class LOCKSTEP_API Callback {
 public:
  virtual ~Callback() = default;

  /// When `fit` begins, after a checkpoint was restored, and when it ends.
  virtual void on_train_begin(Trainer& /*trainer*/) {}
  virtual void on_train_end(Trainer& /*trainer*/, const History& /*history*/) {}

  /// Where `fit` throws instead, on each worker on which it does, before the error goes on; `reason` is its text. Also
  /// where `on_train_begin` was not called yet. Workers may be at different places, so nothing collective may be called
  /// here. What it throws itself is logged.
  virtual void on_train_error(Trainer& /*trainer*/, const std::string& /*reason*/) {}

  /// Epochs count from 0. A restored epoch begins again, too. `logs` has the results of the epoch; what a callback adds
  /// becomes part of the history.
  virtual void on_epoch_begin(Trainer& /*trainer*/, int64_t /*epoch*/) {}
  virtual void on_epoch_end(Trainer& /*trainer*/, int64_t /*epoch*/, Logs& /*logs*/) {}

  /// Before and after each update. `step` is the number of updates before it, and with it.
  virtual void on_step_begin(Trainer& /*trainer*/, int64_t /*step*/) {}
  virtual void on_step_end(Trainer& /*trainer*/, int64_t /*step*/) {}

  virtual void on_evaluate_begin(Trainer& /*trainer*/) {}
  /// `step` is the number of batches.
  virtual void on_evaluate_step_end(Trainer& /*trainer*/, int64_t /*step*/) {}
  virtual void on_evaluate_end(Trainer& /*trainer*/, const Logs& /*logs*/) {}

  virtual void on_predict_begin(Trainer& /*trainer*/) {}
  virtual void on_predict_step_end(Trainer& /*trainer*/, int64_t /*step*/) {}
  virtual void on_predict_end(Trainer& /*trainer*/) {}

  /// What a checkpoint keeps of the callback.
  virtual State state() const { return {}; }
  virtual void load_state(const State& /*state*/) {}
};

}  // namespace lockstep
