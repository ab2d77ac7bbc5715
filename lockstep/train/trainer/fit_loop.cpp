#include "lockstep/train/trainer/fit_loop.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/progress/progress_line.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/trainer/model_mode.h"

namespace lockstep {
namespace {

constexpr uint8_t kInterruptBit = 1;
constexpr uint8_t kTerminateBit = 2;
// What workers ask each other; of these two.
constexpr int kAskShift = 2;
constexpr uint8_t kAskLoss = 1;
constexpr uint8_t kAskInterval = 2;

FitOptions checked_fit(const FitOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.epochs >= 0, "[Trainer::fit] epochs must not be negative: epochs=", options.epochs);
  LOCKSTEP_CHECK_VALUE(options.validation_every >= 1, "[Trainer::fit] validation_every must be at least 1: ",
                       "validation_every=", options.validation_every);
  LOCKSTEP_CHECK_VALUE(!options.steps_per_epoch || *options.steps_per_epoch >= 1,
                       "[Trainer::fit] steps_per_epoch must be at least 1: steps_per_epoch=", *options.steps_per_epoch);
  return options;
}

bool saves_by_steps(const CheckpointOptions& options) { return options.every_steps > 0 || options.every.count() > 0; }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void tell_error(Trainer& trainer, const std::vector<std::shared_ptr<Callback>>& callbacks, const std::string& reason) {
  for (const auto& callback : callbacks) {
    try {
      callback->on_train_error(trainer, reason);
    } catch (const std::exception& error) {
      LOCKSTEP_LOG(Warn) << "[Trainer::fit] a callback failed after an error of the training: " << error.what();
    }
  }
}

}  // namespace

FitLoop::FitLoop(Trainer& trainer, const TrainerInput& data, const FitOptions& options)
    : trainer_(trainer),
      impl_(*trainer.impl_),
      options_(checked_fit(options)),
      data_(data.distribute(impl_.strategy)),
      any_worker_(detail::Access::impl(impl_.strategy).any_worker()) {
  LOCKSTEP_CHECK_VALUE(options.steps_per_epoch || !data_->cardinality().is_infinite(),
                       "[Trainer::fit] a dataset without an end needs steps_per_epoch");
  if (options_.checkpoint_folder.empty()) return;
  std::vector<Checkpoint::Entry> entries = trainer.checkpoint_entries();
  entries.emplace_back("data", data_->state_object());
  manager_ = std::make_unique<CheckpointManager>(Checkpoint(std::move(entries)), options_.checkpoint_folder,
                                                 options_.checkpoint);
  manager_->set_end_request([] { return detail::InterruptNotice::has_come(); }, [] { return true; });
  manager_->set_question([this] { return asked_bits(); });
}

History FitLoop::run() {
  detail::set_training(impl_.models.modules);
  display_.emplace(is_shown());
  impl_.stop_reason.reset();
  impl_.progress.first_epoch = impl_.progress.epoch;
  impl_.progress.step_in_epoch = 0;
  impl_.progress.has_all_batches = false;
  impl_.saves_stop = true;
  if (manager_) {
    manager_->restore_or_initialize();
    is_restored_ = manager_->last_restored().has_value();
  }
  for_callbacks([&](Callback& callback) { callback.on_train_begin(trainer_); });
  while (!all_done() && !impl_.stop_reason && !is_signalled()) run_epoch();
  bar_.reset();
  if (manager_ && !is_signalled() && impl_.saves_stop) {
    manager_->save(impl_.progress.step);
    manager_->wait();
  }
  History history = impl_.progress.history;
  const auto begin = std::min<size_t>(static_cast<size_t>(impl_.progress.first_epoch), history.epochs.size());
  history.epochs.erase(history.epochs.begin(), history.epochs.begin() + static_cast<std::ptrdiff_t>(begin));
  history.steps = impl_.progress.step;
  history.end = impl_.stop_reason && !is_signalled() ? History::End::Stopped : end_;
  history.reason = impl_.stop_reason.value_or("");
  for_callbacks([&](Callback& callback) { callback.on_train_end(trainer_, history); });
  return history;
}

std::vector<std::vector<Batch>> FitLoop::next_batches() {
  std::vector<std::vector<Batch>> micro;
  while (!impl_.progress.has_all_batches && static_cast<int64_t>(micro.size()) < impl_.options.accumulate) {
    if (!batches_) {
      batches_ = data_->iterator();
      may_be_empty_ = std::exchange(is_restored_, false);
    }
    std::vector<Batch> batches = batches_->next();
    if (!batches.empty()) {
      may_be_empty_ = true;
      micro.push_back(std::move(batches));
      continue;
    }
    batches_.reset();
    impl_.progress.has_all_batches = !options_.steps_per_epoch;
    LOCKSTEP_CHECK_VALUE(may_be_empty_ || impl_.progress.has_all_batches, "[Trainer::fit] the dataset has no batches");
  }
  return micro;
}

bool FitLoop::all_done() const { return impl_.progress.epoch - impl_.progress.first_epoch >= options_.epochs; }

bool FitLoop::epoch_is_full() const {
  return options_.steps_per_epoch && impl_.progress.step_in_epoch >= *options_.steps_per_epoch;
}

void FitLoop::run_epoch() {
  detail::TrainerProgress& progress = impl_.progress;
  if (progress.step_in_epoch == 0) impl_.train_metrics.reset();
  for_callbacks([&](Callback& callback) { callback.on_epoch_begin(trainer_, progress.epoch); });
  if (is_shown()) bar_.emplace("epoch " + epoch_text(), bar_options());
  const auto begin = Clock::now();
  const int64_t first_step = progress.step_in_epoch;
  while (!epoch_is_full() && !impl_.stop_reason) {
    const auto micro = next_batches();
    if (micro.empty()) break;
    for_callbacks([&](Callback& callback) { callback.on_step_begin(trainer_, progress.step); });
    impl_.train(micro);
    comm::note_finished_step(progress.step);
    for_callbacks([&](Callback& callback) { callback.on_step_end(trainer_, progress.step); });
    if (!impl_.saves_stop || !after_step()) return;
    show_step();
  }
  LOCKSTEP_CHECK_VALUE(progress.step_in_epoch > 0 || impl_.stop_reason, "[Trainer::fit] the dataset has no batches");
  end_epoch(seconds_since(begin), progress.step_in_epoch - first_step);
  bar_.reset();
}

uint8_t FitLoop::signal_bits(uint8_t others) const {
  uint8_t bits = detail::InterruptNotice::has_come() ? kInterruptBit : 0;
  if (detail::PreemptionNotice::has_come()) bits |= kTerminateBit;
  bits |= others;
  return any_worker_ ? any_worker_(bits) : bits;
}

std::optional<Logs> FitLoop::evaluate_until(const TrainerInput& data) {
  return trainer_.evaluate_unless(data, [&] { return signal_bits() != 0; });
}

uint8_t FitLoop::asked_bits() const {
  uint8_t bits = bar_ && bar_->wants_value() ? kAskLoss : 0;
  if (std::exchange(impl_.wants_interval_end, false)) bits |= kAskInterval;
  return bits;
}

void FitLoop::take_answer(uint8_t bits) {
  reads_loss_ = (bits & kAskLoss) != 0;
  impl_.ends_interval = (bits & kAskInterval) != 0;
}

bool FitLoop::after_step() {
  if (manager_) {
    const bool goes_on = manager_->after_step(impl_.progress.step);
    take_answer(manager_->last_answer());
    if (goes_on) return true;
    end_ = manager_->preempted() ? History::End::Preempted : History::End::Interrupted;
    return false;
  }
  const uint8_t bits = signal_bits(static_cast<uint8_t>(asked_bits() << kAskShift));
  take_answer(static_cast<uint8_t>(bits >> kAskShift));
  if ((bits & (kInterruptBit | kTerminateBit)) == 0) return true;
  end_ = (bits & kTerminateBit) != 0 ? History::End::Preempted : History::End::Interrupted;
  return false;
}

void FitLoop::end_epoch(double seconds, int64_t steps) {
  detail::TrainerProgress& progress = impl_.progress;
  if (impl_.stop_reason && !options_.steps_per_epoch) batches_.reset();
  Logs logs = impl_.train_metrics.results();
  const int64_t done = progress.epoch + 1 - progress.first_epoch;
  const bool is_last = done >= options_.epochs || impl_.stop_reason;
  if (options_.validation && (done % options_.validation_every == 0 || is_last)) {
    const auto results = evaluate_until(*options_.validation);
    if (!results) {  // after a restore the epoch ends again
      after_step();
      return;
    }
    for (const auto& [name, value] : *results) logs["val_" + name] = value;
  }
  for_callbacks([&](Callback& callback) { callback.on_epoch_end(trainer_, progress.epoch, logs); });
  report(logs, seconds, steps);
  progress.history.epochs.push_back(logs);
  ++progress.epoch;
  progress.step_in_epoch = 0;
  progress.has_all_batches = false;
  save_at_end_of_epoch();
}

void FitLoop::save_at_end_of_epoch() {
  const bool is_end = all_done() || impl_.stop_reason;
  if (manager_ && !saves_by_steps(options_.checkpoint) && !is_end) manager_->save(impl_.progress.step);
}

std::string FitLoop::epoch_text() const {
  return c10::str(impl_.progress.epoch + 1 - impl_.progress.first_epoch, "/", options_.epochs);
}

progress::TaskOptions FitLoop::bar_options() const {
  progress::TaskOptions options{.unit = "steps", .kind = progress::Kind::Loop, .value_name = "loss"};
  const int64_t micro = impl_.options.accumulate;
  const int64_t of_dataset = (data_->cardinality().size().value_or(0) + micro - 1) / micro;
  options.total = options_.steps_per_epoch.value_or(of_dataset);
  options.done = impl_.progress.step_in_epoch;
  // Reading it waits for a device, or for other workers.
  const auto parameters = impl_.models.modules[0]->all()[0]->parameters();
  const bool is_at_hand = !any_worker_ && !parameters.empty() && parameters[0].device().is_cpu();
  if (!is_at_hand) options.value_every = std::chrono::seconds(1);
  return options;
}

void FitLoop::show_step() {
  if (bar_) bar_->set(impl_.progress.step_in_epoch);
  if (!reads_loss_) return;
  double loss = 0;
  if (any_worker_) {
    loss = trainer_.step_loss();
  } else {
    for (const at::Tensor& share : impl_.strategy.local_results(*impl_.last_loss)) loss += share.item<double>();
  }
  if (bar_) bar_->set_value(loss);
}

void FitLoop::report(const Logs& logs, double seconds, int64_t steps) const {
  if (!is_shown()) return;
  const std::string rate = seconds > 0 ? ", " + progress::rate_text(static_cast<double>(steps) / seconds, "steps") : "";
  std::array<char, 32> time{};
  std::snprintf(time.data(), time.size(), "%.1f s", seconds);
  progress::print_line(c10::str("epoch ", epoch_text(), ": ", impl_.progress.step_in_epoch, " steps, ", time.data(),
                                rate, ", ", to_string(logs)));
}

History Trainer::fit(const TrainerInput& data, const FitOptions& options) {
  const auto scope = impl_->strategy.scope();
  try {
    return FitLoop(*this, data, options).run();
  } catch (...) {
    tell_error(*this, impl_->options.callbacks, error_text(std::current_exception()));
    throw;
  }
}

}  // namespace lockstep
