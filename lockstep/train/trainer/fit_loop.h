#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/progress/progress.h"
#include "lockstep/train/checkpoint_manager.h"
#include "lockstep/train/preemption.h"
#include "lockstep/train/trainer/trainer.h"
#include "lockstep/train/trainer/trainer_impl.h"

namespace lockstep {

/// Internal: the loop over epochs and steps of `Trainer::fit`.
class FitLoop {
 public:
  FitLoop(Trainer& trainer, const TrainerInput& data, const FitOptions& options);

  History run();

 private:
  using Clock = std::chrono::steady_clock;

  /// Returns the micro-batches of the next update; an empty list at the end of the epoch.
  std::vector<std::vector<Batch>> next_batches();
  bool all_done() const;
  bool epoch_is_full() const;
  void run_epoch();
  /// The signals that have come to any worker, and other bits that one of them has. All workers call it.
  uint8_t signal_bits(uint8_t others = 0) const;
  /// Evaluates; nothing where a signal comes.
  std::optional<Logs> evaluate_until(const TrainerInput& data);
  /// What this worker asks the others after a step, and the answer: what some worker has asked.
  uint8_t asked_bits() const;
  void take_answer(uint8_t bits);
  /// Returns false where a signal ends the training. Saves where it is time to.
  bool after_step();
  void end_epoch(double seconds, int64_t steps);
  void save_at_end_of_epoch();
  /// Prints the line of an epoch; `steps` were done in these seconds.
  void report(const Logs& logs, double seconds, int64_t steps) const;
  std::string epoch_text() const;
  progress::TaskOptions bar_options() const;
  /// Shows the step, and its loss where it is asked for. All workers call it after `after_step`.
  void show_step();
  bool is_shown() const { return options_.verbose && trainer_.is_chief(); }
  bool is_signalled() const { return end_ == History::End::Interrupted || end_ == History::End::Preempted; }

  template <class Call>
  void for_callbacks(Call&& call) {
    for (const auto& callback : impl_.options.callbacks) call(*callback);
  }

  Trainer& trainer_;
  Trainer::Impl& impl_;
  FitOptions options_;
  std::shared_ptr<detail::DistributedBatches> data_;
  std::unique_ptr<detail::BatchIterator> batches_;
  /// Whether `batches_` may end at once: it has had a batch, or goes on after a restore.
  bool may_be_empty_ = false;
  bool is_restored_ = false;
  std::unique_ptr<CheckpointManager> manager_;
  detail::PreemptionNotice preemption_;
  detail::InterruptNotice interruption_;
  std::function<uint8_t(uint8_t)> any_worker_;
  History::End end_ = History::End::Finished;
  /// Whether workers read the loss of this step together, because the one that shows it asks.
  bool reads_loss_ = false;
  std::optional<progress::Display> display_;
  std::optional<progress::Task> bar_;
};

}  // namespace lockstep
