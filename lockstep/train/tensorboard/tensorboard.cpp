#include "lockstep/train/tensorboard/tensorboard.h"

#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/callbacks/chief_files.h"
#include "lockstep/train/tensorboard/tensorboard_log.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::callbacks {
namespace {

using lockstep::tensorboard::learning_rate_of;
using lockstep::tensorboard::SessionStatus;
using lockstep::tensorboard::TensorBoardLog;

/// All tensors on every worker: where others hold a part, all of them read it.
State read_all_tensors(const State& state) {
  State copies;
  for (const auto& [name, value] : state) {
    if (const auto* const tensor = std::get_if<StateTensor>(&value)) copies.set(name, tensor->read());
  }
  return copies;
}

class TensorBoard final : public Callback {
 public:
  TensorBoard(std::string folder, const TensorBoardOptions& options) : folder_(std::move(folder)), options_(options) {
    LOCKSTEP_CHECK_VALUE(!folder_.empty(), "[tensorboard] the folder must have a name");
    LOCKSTEP_CHECK_VALUE(options_.every_steps >= 0,
                         "[tensorboard] every_steps must not be negative: every_steps=", options_.every_steps);
    LOCKSTEP_CHECK_VALUE(options_.histograms_every >= 0, "[tensorboard] histograms_every must not be negative: ",
                         "histograms_every=", options_.histograms_every);
  }

  void on_train_begin(Trainer& trainer) override {
    write_on_chief(trainer, [&] {
      log_ = std::make_unique<TensorBoardLog>(folder_, trainer.step());
      if (!options_.hyper_parameters.empty()) log_->hyper_parameters(options_.hyper_parameters);
    });
  }

  void on_step_end(Trainer& trainer, int64_t step) override {
    if (options_.every_steps == 0 || step % options_.every_steps != 0) return;
    const double loss = trainer.step_loss();
    write_on_chief(trainer, [&] { log_->add_step(step, loss, learning_rate_of(trainer)); });
  }

  void on_epoch_end(Trainer& trainer, int64_t epoch, Logs& logs) override {
    const bool has_histograms = options_.histograms_every > 0 && (epoch + 1) % options_.histograms_every == 0;
    const State values = has_histograms ? read_all_tensors(trainer.model_state()) : State();
    write_on_chief(trainer, [&] {
      log_->add_histograms(trainer.step(), values);
      log_->add_epoch(trainer.step(), logs, learning_rate_of(trainer));
    });
  }

  void on_train_end(Trainer& trainer, const History& history) override {
    const bool is_success = history.end == History::End::Finished || history.end == History::End::Stopped;
    write_on_chief(trainer, [&] { end(is_success ? SessionStatus::Success : SessionStatus::Unknown); });
  }

  void on_train_error(Trainer& /*trainer*/, const std::string& /*reason*/) override { end(SessionStatus::Failure); }

 private:
  void end(SessionStatus status) {
    if (const auto log = std::move(log_)) log->end(status);
  }

  std::string folder_;
  TensorBoardOptions options_;
  /// On the worker that writes, while a training runs.
  std::unique_ptr<TensorBoardLog> log_;
};

}  // namespace

std::shared_ptr<Callback> tensorboard(const std::string& folder, const TensorBoardOptions& options) {
  return std::make_shared<TensorBoard>(folder, options);
}

}  // namespace lockstep::callbacks
